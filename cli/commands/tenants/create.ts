import { Command } from 'commander';
import { actorOption, type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface TenantsCreateOptions extends CommonOptions {
  readonly id: string;
  readonly actor: string;
}

export function newTenantsCreate(ports: Ports, run: (options: TenantsCreateOptions) => Promise<void>): Command {
  const command = new Command('create')
    .description('Create a tenant; machines join it with a token that names it')
    .argument('<id>', 'lower-case letters, digits and dashes')
    .addOption(actorOption(ports.io))
    .action((id: string, flags: { actor: string }) => run({ ...commonOptions(command), id, actor: flags.actor }));
  return withExamples(command, ['better-compute tenants create acme', 'better-compute tokens create --tenant acme --site eu-1']);
}

export async function tenantsCreateRun({ json, id, actor }: TenantsCreateOptions, { io, api }: Ports): Promise<void> {
  const created = await api().createTenant({ id, actor });
  if (json) return writeJson(io, created);
  io.out(created.id);
}
