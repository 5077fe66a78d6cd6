import { Argument, Command, Option } from 'commander';
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { type CommonOptions, commonOptions, duration, withExamples } from '../../command.ts';
import { instantText, plain } from '../../format.ts';
import { writeJson, writeJsonLine } from '../../io.ts';
import type { MachineDetailAnswer } from '../../machines/client.ts';
import { machineFacts, remainsText, timelineText, watchLine } from '../../machines/view.ts';
import type { Ports } from '../../ports.ts';

export interface MachineShowOptions extends CommonOptions {
  readonly machine: string;
  readonly timeline: boolean;
  /** A run of it; null: the newest. */
  readonly run: string | null;
  readonly watch: boolean;
  readonly intervalMs: number;
}

interface Flags {
  readonly timeline: boolean;
  readonly run?: string;
  readonly watch: boolean;
  readonly every: number;
}

export function newMachineShow(run: (options: MachineShowOptions) => Promise<void>): Command {
  const command = new Command('show')
    .description('Show a machine: who it is, its disks, what runs on it, what that waits for and which command helps')
    .addArgument(new Argument('<machine>', 'machine id'))
    .option('--timeline', 'the steps of its newest run in time, the commands with their answers, the evidence', false)
    .option('--run <run>', 'the timeline of this run')
    .option('--watch', 'print a line for each change, with bytes and the time left, until the run ends', false)
    .addOption(new Option('--every <time>', 'how often to look, with --watch').default(2_000, '2s').argParser(duration))
    .action((machine: string, flags: Flags) =>
      run({
        ...commonOptions(command),
        machine,
        timeline: flags.timeline || flags.run !== undefined,
        run: flags.run ?? null,
        watch: flags.watch,
        intervalMs: flags.every,
      }),
    );
  return withExamples(command, [
    'better-compute machine show gpu-0117',
    'better-compute machine show gpu-0117 --timeline',
    'better-compute machine show gpu-0117 --watch --every 10s --json',
  ]);
}

export async function machineShowRun(options: MachineShowOptions, ports: Ports): Promise<void> {
  if (options.watch) return watch(options, ports);
  const { io, machines } = ports;
  const client = machines();
  const machine = await client.get(options.machine);
  if (!options.timeline) return options.json ? writeJson(io, machine) : io.out(machineFacts(machine, io.now()));
  const runId = options.run ?? machine.runs[0]?.id;
  if (runId === undefined) {
    if (options.json) return writeJson(io, { machine, run: null });
    return io.err(`nothing has run on ${options.machine}`);
  }
  const run = await client.run(runId);
  if (run.machineId !== machine.id)
    throw new ControlError('NOT_FOUND', `run ${runId} is none of ${machine.id}`, { details: { reason: 'unknown-run', runId } });
  if (options.json) return writeJson(io, { machine, run });
  io.out(timelineText(run, io.now()));
}

async function watch(options: MachineShowOptions, ports: Ports): Promise<void> {
  const { io } = ports;
  let last = '';
  let watched: string | null = null;
  while (!io.signal.aborted) {
    const machine = await lookOnce(options, ports);
    watched = machine?.run?.id ?? watched;
    const line = machine === null ? 'the api does not answer; trying again' : watchLine(machine, io.now());
    if (line !== last) show(options, ports, { line, machine });
    last = line;
    if (machine !== null && machine.run === null) return assertEndedWell(machine, watched);
    await io.sleep(options.intervalMs);
  }
}

/** null while the api is away: whoever watches a wipe of hours wants to see the end of an outage, not an exit. */
async function lookOnce({ machine }: MachineShowOptions, { machines }: Ports): Promise<MachineDetailAnswer | null> {
  try {
    return await machines().get(machine);
  } catch (error) {
    if (isControlError(error) && error.code === 'UNAVAILABLE') return null;
    throw error;
  }
}

function show({ json }: MachineShowOptions, { io }: Ports, { line, machine }: { line: string; machine: MachineDetailAnswer | null }): void {
  if (json) {
    const { state = null, run = null, working = [], live = null } = machine ?? {};
    return writeJsonLine(io, { at: io.now(), line, state, run, working, live });
  }
  io.out(`${instantText(io.now())}  ${plain(line)}`);
}

/** Of the run that was watched; without one there is nothing to judge. */
function assertEndedWell({ id, runs }: MachineDetailAnswer, watched: string | null): void {
  const run = runs.find((one) => one.id === watched);
  if (run === undefined || run.state === 'done') return;
  const left = run.remains === null ? '' : `: ${remainsText[run.remains]}`;
  throw new ControlError(
    run.state === 'cancelled' ? 'CANCELLED' : 'INVALID_STATE',
    `the ${run.kind} run of ${id} ${run.state === 'cancelled' ? 'was cancelled' : `failed (${run.endReason})`}${left}`,
    {
      details: { reason: 'run-ended', runId: run.id, remains: run.remains, hint: `better-compute machine show ${id} --timeline` },
    },
  );
}
