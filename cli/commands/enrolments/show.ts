import { Argument, Command } from 'commander';
import { showInstant } from '../../../domain/time.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { facts } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface EnrolmentsShowOptions extends CommonOptions {
  readonly id: string;
}

export function newEnrolmentsShow(run: (options: EnrolmentsShowOptions) => Promise<void>): Command {
  const command = new Command('show')
    .description('Show one enrolment: whom it reaches and how, how far it is, how it ended')
    .addArgument(new Argument('<enrolment>', 'the id that enrolments list shows'))
    .action((id: string) => run({ ...commonOptions(command), id }));
  return withExamples(command, ['better-compute enrolments show enr-0a1b2c3d4e5f0a1b2c3d4e5f']);
}

export async function enrolmentsShowRun({ id, json }: EnrolmentsShowOptions, { io, api }: Ports): Promise<void> {
  const found = await api().getEnrolment(id);
  if (json) return writeJson(io, found);
  const { nodeId, kind, siteId, role, tenantId, baseGeneration, login, address, port, becomeRoot, hostKey, credential, state } = found;
  const rows: (readonly [string, string])[] = [
    ['node', `${nodeId} (${role} of site ${siteId}, tenant ${tenantId})`],
    ['kind', `${kind}: generation ${(baseGeneration ?? 0) + 1} ${baseGeneration === null ? 'is its first' : `follows ${baseGeneration}`}`],
    ['at', `${login}@${address}:${port}${becomeRoot ? ', with sudo' : ''}`],
    ['host key', hostKey],
    ['credential', credential],
    ['state', `${state}${found.endReason === '' ? '' : `: ${found.endReason}`}`],
    ['ordered', `${showInstant(found.createdAt)} by ${found.createdBy}: ${found.reason}`],
    ...(found.deadline === null ? [] : [['completes by', showInstant(found.deadline)] as const]),
    ...(found.endedAt === null ? [] : [['ended', showInstant(found.endedAt)] as const]),
    ['workflow', found.workflowId],
  ];
  io.out(facts(rows));
}
