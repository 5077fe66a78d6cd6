import { Command } from 'commander';
import { secretRef } from '../../../domain/secrets/reference.ts';
import { actorOption, assertConfirmed, type CommonOptions, commonOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface SecretsDeleteOptions extends CommonOptions {
  readonly path: string;
  readonly actor: string;
  readonly yes: boolean;
}

export function newSecretsDelete(ports: Ports, run: (options: SecretsDeleteOptions) => Promise<void>): Command {
  const command = new Command('delete')
    .description('Forget every version of a secret: machines that name it are answered that there is none')
    .argument('<path>', 'what stands behind secret://')
    .addOption(actorOption(ports.io))
    .addOption(yesOption())
    .action((path: string, flags: { actor: string; yes: boolean }) => run({ ...commonOptions(command), ...flags, path }));
  return withExamples(command, ['better-compute secrets delete bmc/gpu-0117 --yes']);
}

export async function secretsDeleteRun({ path, actor, yes, json }: SecretsDeleteOptions, { io, api }: Ports): Promise<void> {
  await assertConfirmed(io, yes, `Delete ${secretRef(path)}? Every version of it is forgotten, and nothing brings one back.`);
  const deleted = await api().deleteSecret({ path, actor });
  if (json) return writeJson(io, deleted);
  io.out(`deleted ${secretRef(deleted.path)}`);
}
