import { Argument, Command } from 'commander';
import type { CommandAnswer } from '../../api-client.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { agoText, table } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { progressText } from '../../progress.ts';

export interface CommandsShowOptions extends CommonOptions {
  readonly id: string;
}

export function newCommandsShow(run: (options: CommandsShowOptions) => Promise<void>): Command {
  const command = new Command('show')
    .description('Show a command, or every command of a workflow: state, result, why it was rejected')
    .addArgument(new Argument('<id>', 'command id or workflow id'))
    .action((id: string) => run({ ...commonOptions(command), id }));
  return withExamples(command, ['better-compute commands show command/7c1d…', 'better-compute commands show command/7c1d…/node-17 --json']);
}

export async function commandsShowRun({ id, json }: CommandsShowOptions, { io, api }: Ports): Promise<void> {
  const commands = await api().getCommands(id);
  if (json) return writeJson(io, { commands });
  io.out(commandTable(commands, io.now()));
}

export const commandTable = (commands: readonly CommandAnswer[], now: number): string =>
  table(
    ['COMMAND', 'NODE', 'KIND', 'STATE', 'CREATED', 'DETAIL'],
    commands.map((command) => [
      command.id,
      command.nodeId,
      command.kind,
      command.state,
      agoText(command.createdAt, now),
      detailOf(command, now),
    ]),
  );

function detailOf({ kind, rejectReason, result, finishedAt, createdAt, progress }: CommandAnswer, now: number): string {
  if (rejectReason !== null && rejectReason !== '') return rejectReason;
  if (result !== null && result.errorCode !== '') return `${result.errorCode}: ${result.errorMessage}`;
  if (finishedAt !== null) return `in ${finishedAt - createdAt} ms`;
  return progress === undefined ? '-' : progressText(kind, progress, now);
}
