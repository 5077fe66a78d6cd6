import { Command, Option } from 'commander';
import { showInstant } from '../../../domain/time.ts';
import { type PkiBundle, type RenewableCa, renewCa, updateBundle, withExternalSigners } from '../../../pki/bundle/index.ts';
import type { ExternalSigners } from '../../../pki/signers/index.ts';
import { type Certificate, spkiPin } from '../../../pki/x509/index.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { readRootKey } from './root-key.ts';
import { withSigners } from './signers.ts';
import { assertMayWriteBack, pkiOption, secretOf, withSource } from './source.ts';

const spoken = ['node', 'serving', 'internal'] as const;
type Spoken = (typeof spoken)[number];

const keyOf: Readonly<Record<Spoken, RenewableCa>> = Object.freeze({ node: 'nodeCa', serving: 'servingCa', internal: 'internalCa' });

export interface PkiRenewCaOptions extends CommonOptions {
  readonly ca: Spoken;
  readonly rootKey: string | null;
  readonly pki: string | null;
}

export function newPkiRenewCa(run: (options: PkiRenewCaOptions) => Promise<void>): Command {
  const command = new Command('renew-ca')
    .description('Issue a new certificate for a CA from the root: same key, same subject, same pins; nothing joins again')
    .addOption(new Option('--ca <ca>', 'the authority').choices(spoken).makeOptionMandatory())
    .option('--root-key <file>', 'the offline root key, where the bundle does not hold it')
    .addOption(pkiOption())
    .action((flags: { ca: Spoken; rootKey?: string; pki?: string }) =>
      run({ ...commonOptions(command), ca: flags.ca, rootKey: flags.rootKey ?? null, pki: flags.pki ?? null }),
    );
  return withExamples(command, [
    'better-compute pki renew-ca --ca node',
    'better-compute pki renew-ca --ca serving --root-key /media/usb/root-ca.key',
  ]);
}

/** CLI-049 to CLI-058. */
export async function pkiRenewCaRun(options: PkiRenewCaOptions, ports: Ports): Promise<void> {
  assertMayWriteBack(ports);
  const rootSigner = options.rootKey === null ? {} : { rootSigner: await readRootKey(options.rootKey, ports.io) };
  const ca = keyOf[options.ca];
  const replaced: { certificate?: Certificate } = {};
  const change =
    (signers: ExternalSigners) =>
    async (before: PkiBundle): Promise<PkiBundle> => {
      replaced.certificate = before[ca].certificate;
      return (await renewCa(withExternalSigners(before, signers), { ca, now: ports.io.now(), ...rootSigner })).bundle;
    };
  const { bundle } = await withSigners(ports, (signers) =>
    withSource(options.pki, ports, (source) => updateBundle(source, secretOf(ports), change(signers))),
  );
  report({ bundle, options, replaced: replaced.certificate }, ports);
}

interface Renewed {
  readonly bundle: PkiBundle;
  readonly options: PkiRenewCaOptions;
  readonly replaced: Certificate | undefined;
}

function report({ bundle, options: { ca, json }, replaced }: Renewed, ports: Ports): void {
  const { certificate, spki } = bundle[keyOf[ca]];
  const done = {
    ca,
    notAfter: showInstant(certificate.notAfter),
    serial: certificate.serial,
    ...(ca === 'serving' ? { servingCaPin: spkiPin(spki) } : {}),
  };
  if (json) return writeJson(ports.io, done);
  ports.io.out(
    Object.entries(done)
      .map(([name, value]) => `${name}: ${value}`)
      .join('\n'),
  );
  const until = replaced === undefined ? '' : ` before ${showInstant(replaced.notAfter)}, when the earlier certificate ends`;
  ports.io.err(`next: roll the bundle out to every process${until}${alsoNeeded[ca]}`);
}

/** Files outside the bundle that carry the CA's certificate. */
const alsoNeeded: Readonly<Record<Spoken, string>> = Object.freeze({
  node: '; give every gateway the new node-ca.pem, which pki issue-gateway writes',
  serving: '; the next pki issue-gateway puts the new certificate into the chain of each gateway',
  internal: '; give every gateway and worker the new internal-ca.pem with its next certificate',
});
