import { Command, Option } from 'commander';
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { type CommonOptions, commonOptions, duration, withExamples } from '../../command.ts';
import { instantText } from '../../format.ts';
import { writeJsonLine } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import type { AnyRotationPort, AnyRotationRun } from '../../rotation-port.ts';
import { type RotationTarget, type TargetFlags, targetOf, withTarget } from '../../rotation-target.ts';
import { watchLine } from '../../rotation-view.ts';

export interface RotationWatchOptions extends CommonOptions {
  readonly intervalMs: number;
  /** The command root without. */
  readonly target?: RotationTarget;
}

export function newRotationWatch(run: (options: RotationWatchOptions) => Promise<void>): Command {
  const command = withTarget(new Command('watch'))
    .description('Print a line for each change of phase or of who is waited for, until the rotation ends')
    .addOption(new Option('--every <time>', 'how often to look').default(1_000, '1s').argParser(duration))
    .action(({ every, ...flags }: TargetFlags & { every: number }) =>
      run({ ...commonOptions(command), intervalMs: every, target: targetOf(flags) }),
    );
  return withExamples(command, [
    'better-compute rotation watch',
    'better-compute rotation watch --every 10s --json',
    'better-compute rotation watch --key workload',
  ]);
}

export async function rotationWatchRun(options: RotationWatchOptions, ports: Ports): Promise<void> {
  const { io } = ports;
  const rotation = await ports.rotation(options.target);
  let last = '';
  try {
    while (!io.signal.aborted) {
      const run = await lookOnce(rotation);
      const line = run === null ? 'Temporal does not answer; trying again' : watchLine(run);
      if (line !== last) show(options, ports, { line, run });
      last = line;
      if (run !== null && run.state !== 'running') return assertEndedWell(run);
      await io.sleep(options.intervalMs);
    }
  } finally {
    await rotation.close();
  }
}

/** null while Temporal is away: whoever watches a day-long rotation wants to see the end of an outage, not an exit. */
async function lookOnce(rotation: AnyRotationPort): Promise<AnyRotationRun | null> {
  try {
    return await rotation.find();
  } catch (error) {
    if (isControlError(error) && error.code === 'UNAVAILABLE') return null;
    throw error;
  }
}

function show(options: RotationWatchOptions, { io }: Ports, seen: { line: string; run: AnyRotationRun | null }): void {
  if (options.json)
    return writeJsonLine(io, { at: io.now(), line: seen.line, state: seen.run?.state ?? null, status: seen.run?.status ?? null });
  io.out(`${instantText(io.now())}  ${seen.line}`);
}

function assertEndedWell(run: AnyRotationRun): void {
  if (run.state === 'completed') return;
  throw new ControlError(
    run.state === 'cancelled' ? 'CANCELLED' : 'INVALID_STATE',
    `the rotation ended as ${run.state}${run.failure === null ? '' : `: ${run.failure}`}`,
    {
      details: { reason: 'rotation-ended', runId: run.runId },
    },
  );
}
