/** `better-compute start`: the whole control plane on this machine, and the demonstration that `npm start` shows. */
import { Command } from 'commander';
import { ControlError } from '../../domain/errors.ts';
import { type CommonOptions, commonOptions, wholeNumber, withExamples } from '../command.ts';
import type { CliIo } from '../io.ts';

export interface StartOptions extends CommonOptions {
  readonly demonstration: boolean;
  readonly once: boolean;
  readonly nodes: number;
  /** A batch of reboots instead of a rotation. */
  readonly batch: boolean;
  /** Machines from their controllers to their own systems, instead of a rotation. */
  readonly metal: boolean;
  readonly each: number;
}

const mostNodes = 50;

export function newStart(run: (options: StartOptions) => Promise<void>): Command {
  const command = new Command('start')
    .alias('up')
    .description('Start PostgreSQL, Temporal and every process of the control plane here, and keep them running until Ctrl-C')
    .option('--demonstration', 'join real daemons, run a command on each every second, and show one rotation live', false)
    .option('--once', 'with --demonstration: end after the rotation; the last line is JSON', false)
    .option('--nodes <count>', 'with --demonstration: how many daemons', wholeNumber, 5)
    .option('--batch', 'with --demonstration: show a batch of reboots that approvers sign, instead of a rotation', false)
    .option('--metal', 'with --demonstration: provision machines behind fake controllers, instead of a rotation', false)
    .option('--each <count>', 'with --batch: reboots of each machine', wholeNumber, 10)
    .action((flags: Omit<StartOptions, 'json'>) => run({ ...commonOptions(command), ...flags }));
  return withExamples(command, [
    'better-compute start',
    'better-compute start --demonstration --once',
    'better-compute start --demonstration --batch --nodes 50 --once',
    'better-compute start --demonstration --metal --nodes 10 --once',
    'BETTER_COMPUTE_HOME=/srv/second BETTER_COMPUTE_API_PORT=0 better-compute start',
  ]);
}

export async function startRun(options: StartOptions, io: CliIo): Promise<void> {
  assertShowable(options);
  if (options.once && !options.demonstration) {
    throw new ControlError('INVALID_INPUT', '--once says when the demonstration ends: it needs --demonstration', {
      details: { reason: 'once-alone' },
    });
  }
  if (options.nodes > mostNodes) {
    throw new ControlError('INVALID_INPUT', `--nodes ${options.nodes} is more than ${mostNodes}: each is a process of its own`, {
      details: { reason: 'too-many-nodes' },
    });
  }
  const { runStart } = await import('../stack/run-start.ts');
  await runStart(options, io);
}

function assertShowable({ batch, metal, demonstration }: StartOptions): void {
  const chosen = batch ? 'batch' : 'metal';
  if ((batch || metal) && !demonstration)
    throw new ControlError('INVALID_INPUT', `--${chosen} says what the demonstration shows: it needs --demonstration`, {
      details: { reason: `${chosen}-alone` },
    });
  if (batch && metal)
    throw new ControlError('INVALID_INPUT', '--batch and --metal are two demonstrations: choose one', { details: { reason: 'two-shown' } });
}

export function register(program: Command, io: CliIo): void {
  program.addCommand(newStart((options) => startRun(options, io)));
}
