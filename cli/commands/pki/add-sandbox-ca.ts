import { Command } from 'commander';
import { addSandboxSshCa, updateBundle } from '../../../pki/bundle/index.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { assertMayWriteBack, pkiOption, secretOf, withSource } from './source.ts';

export interface PkiAddSandboxCaOptions extends CommonOptions {
  readonly pki: string | null;
}

export function newPkiAddSandboxCa(run: (options: PkiAddSandboxCaOptions) => Promise<void>): Command {
  const command = new Command('add-sandbox-ca')
    .description('Create the sandbox SSH CA of a bundle that was made before sandboxes; pki init makes one already')
    .addOption(pkiOption())
    .action((flags: { pki?: string }) => run({ ...commonOptions(command), pki: flags.pki ?? null }));
  return withExamples(command, [
    'better-compute pki add-sandbox-ca   # then roll the bundle out to every api, and give vps the printed key',
  ]);
}

/** CLI-029 to CLI-035. */
export async function pkiAddSandboxCaRun({ pki, json }: PkiAddSandboxCaOptions, ports: Ports): Promise<void> {
  assertMayWriteBack(ports);
  const { bundle } = await withSource(pki, ports, (source) =>
    updateBundle(source, secretOf(ports), async (before) => addSandboxSshCa(before)),
  );
  const sandboxSshCaPublicKey = bundle.sandboxSshCa?.publicKey;
  if (json) writeJson(ports.io, { sandboxSshCaPublicKey });
  else ports.io.out(`sandboxSshCaPublicKey: ${sandboxSshCaPublicKey}`);
  ports.io.err('next: roll the bundle out to every api, and give vps this key: sandboxExec.caPublicKey');
}
