import { Argument, Command } from 'commander';
import { actorOption, assertConfirmed, type CommonOptions, commonOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface TenantsDeleteOptions extends CommonOptions {
  readonly id: string;
  readonly actor: string;
  readonly yes: boolean;
}

export function newTenantsDelete(ports: Ports, run: (options: TenantsDeleteOptions) => Promise<void>): Command {
  const command = new Command('delete')
    .description('Delete a tenant: nothing new is made for it and its open batches are cancelled; its machines stay known')
    .addArgument(new Argument('<id>', 'the tenant'))
    .addOption(actorOption(ports.io))
    .addOption(yesOption())
    .action((id: string, flags: { actor: string; yes: boolean }) => run({ ...commonOptions(command), ...flags, id }));
  return withExamples(command, ['better-compute tenants delete acme --yes']);
}

export async function tenantsDeleteRun({ id, actor, yes, json }: TenantsDeleteOptions, { io, api }: Ports): Promise<void> {
  await assertConfirmed(io, yes, `Delete tenant ${id}? Its open batches are cancelled, and its name is never used again.`);
  const deleted = await api().deleteTenant(id, { actor });
  if (json) return writeJson(io, deleted);
  io.out(`deleted ${id}; ${deleted.cancelledBatches.length} open batch(es) cancelled`);
}
