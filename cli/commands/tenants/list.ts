import { Command } from 'commander';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { instantText, table } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export function newTenantsList(run: (options: CommonOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List the tenants and how many machines each has')
    .action(() => run(commonOptions(command)));
  return withExamples(command, ['better-compute tenants list', 'better-compute tenants list --json']);
}

export async function tenantsListRun({ json }: CommonOptions, { io, api }: Ports): Promise<void> {
  const tenants = await api().listTenants();
  if (json) return writeJson(io, { tenants });
  io.out(
    table(
      ['TENANT', 'STATE', 'MACHINES', 'SINCE'],
      tenants.map(({ id, createdAt, deletedAt, nodes }) => [
        id,
        deletedAt === null ? 'active' : 'deleted',
        String(nodes),
        instantText(createdAt),
      ]),
    ),
  );
}
