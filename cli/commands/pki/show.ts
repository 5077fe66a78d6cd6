import { Command } from 'commander';
import { describePins, readPublicBundle } from '../../../pki/bundle/index.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { readShown, writePins } from './pins-view.ts';
import { pkiOption } from './source.ts';

export interface PkiShowOptions extends CommonOptions {
  readonly pki: string | null;
}

export function newPkiShow(run: (options: PkiShowOptions) => Promise<void>): Command {
  const command = new Command('show')
    .description('Show the pins of the key bundle; checked against its seal where BETTER_COMPUTE_SECRET is set')
    .addOption(pkiOption())
    .action((flags: { pki?: string }) => run({ ...commonOptions(command), pki: flags.pki ?? null }));
  return withExamples(command, ['better-compute pki show', 'better-compute pki show --json | jq -r .servingCaPin']);
}

/** CLI-013 to CLI-016, A-PKI-09. */
export async function pkiShowRun({ pki, json }: PkiShowOptions, ports: Ports): Promise<void> {
  const { text, authenticated } = await readShown(pki, ports);
  writePins(describePins(readPublicBundle(text), authenticated), ports, json);
}
