import { Command, Option } from 'commander';
import { signEnvelope } from '../../../pki/envelope/index.ts';
import { withApproverKey } from '../../batch/approver-key.ts';
import { safeJson, writeNew } from '../../batch/files.ts';
import { ownTrustDomain } from '../../batch/trust-domain.ts';
import { type CommonOptions, commonOptions, reasonOption, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { keyOption, parseTrustDomain } from './review-flags.ts';

const kinds = ['force', 'exclude', 'abort'] as const;

export interface BatchSignOverrideOptions extends CommonOptions {
  readonly key: string;
  readonly rotation: string;
  readonly kind: (typeof kinds)[number];
  readonly subject: string;
  readonly reason: string;
  readonly trustDomain: string | null;
  readonly out: string | null;
}

export function newBatchSignOverride(run: (options: BatchSignOverrideOptions) => Promise<void>): Command {
  const command = new Command('sign-override')
    .description('Sign that a rotation may be forced, leave a node behind, or be aborted; needed once there is an approver set')
    .addOption(keyOption())
    .requiredOption('--rotation <id>', 'the rotation, as rotation status names it')
    .addOption(new Option('--kind <kind>', 'what is overridden').choices(kinds).makeOptionMandatory())
    .option('--subject <name>', 'the gate that is forced, or the node that is left behind; empty for an abort', '')
    .addOption(reasonOption())
    .addOption(
      new Option(
        '--trust-domain <name>',
        'the deployment (default: BETTER_COMPUTE_TRUST_DOMAIN, else that of the key bundle here)',
      ).argParser(parseTrustDomain),
    )
    .option('--out <file>', 'where the signature goes (default: standard output)')
    .action((flags: Omit<BatchSignOverrideOptions, 'json' | 'trustDomain' | 'out'> & { trustDomain?: string; out?: string }) =>
      run({ ...commonOptions(command), ...flags, trustDomain: flags.trustDomain ?? null, out: flags.out ?? null }),
    );
  return withExamples(command, [
    'better-compute batch sign-override --key alice.pem --rotation rot_2f9c --kind force --subject fleet --reason "rack 7 burnt down"',
    'better-compute batch sign-override --key alice.pem --rotation rot_2f9c --kind abort --reason "wrong root" --out alice.json',
  ]);
}

/** H-08: the word of one approver, over exactly what the operator will ask for. */
export async function batchSignOverrideRun(options: BatchSignOverrideOptions, ports: Ports): Promise<void> {
  const { rotation: rotationId, kind, subject, reason, out } = options;
  const trustDomain = ownTrustDomain(options.trustDomain, ports);
  await withApproverKey(options.key, ports.io.env, async (signer) => {
    const { kid, sig } = await signEnvelope(signer, 'rotation-override', [rotationId, kind, subject, reason, trustDomain]);
    const text = safeJson({ kid, sig: Buffer.from(sig).toString('base64url'), rotationId, kind, subject, reason, trustDomain });
    if (out === null) return ports.io.out(text);
    writeNew(out, `${text}\n`);
    ports.io.out(out);
  });
}
