import { Argument, Command } from 'commander';
import { actorOption, assertConfirmed, commonOptions, reasonOption, type SignedOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface EnrolmentsCancelOptions extends SignedOptions {
  readonly id: string;
  readonly yes: boolean;
}

export function newEnrolmentsCancel(ports: Ports, run: (options: EnrolmentsCancelOptions) => Promise<void>): Command {
  const command = new Command('cancel')
    .description('End an enrolment that has not completed: what the node was before, it stays')
    .addArgument(new Argument('<enrolment>', 'the id that enrolments list shows'))
    .addOption(actorOption(ports.io))
    .addOption(reasonOption())
    .addOption(yesOption())
    .action((id: string, flags: Omit<EnrolmentsCancelOptions, 'json' | 'id'>) => run({ ...commonOptions(command), ...flags, id }));
  return withExamples(command, ['better-compute enrolments cancel enr-0a1b2c3d4e5f0a1b2c3d4e5f --reason "wrong machine" --yes']);
}

export async function enrolmentsCancelRun({ id, actor, reason, yes, json }: EnrolmentsCancelOptions, { io, api }: Ports): Promise<void> {
  await assertConfirmed(io, yes, `Cancel enrolment ${id}?`);
  const ended = await api().cancelEnrolment(id, { actor, reason });
  if (json) return writeJson(io, ended);
  io.out(`enrolment ${id} of ${ended.nodeId} is ${ended.state}`);
  io.err(`its workflow takes away what was prepared on the machine: ${ended.workflowId}`);
}
