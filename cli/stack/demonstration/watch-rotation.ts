/** A rotation from its start, or from wherever it is, to its end: a line for each change, and how long each phase took. */
import { setTimeout as sleep } from 'node:timers/promises';
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { minute, showInstant } from '../../../domain/time.ts';
import type { RotationPort, RotationRun } from '../../rotation-port.ts';
import { watchLine } from '../../rotation-view.ts';

export interface Watched {
  readonly run: RotationRun;
  /** Phase → seconds in it, in the order they came. */
  readonly secondsPerPhase: Readonly<Record<string, number>>;
}

export interface WatchOptions {
  readonly rotation: RotationPort;
  readonly say: (line: string) => void;
  /** Called at each look at a running rotation. */
  readonly onLook: (run: RotationRun) => void;
  readonly now: () => number;
  readonly signal: AbortSignal;
}

const longestWaitMs = 10 * minute;
const lookEveryMs = 300;

/** @throws the signal's reason when it is aborted; INVALID_STATE when the rotation ended badly */
export async function watchRotation({ rotation, say, onLook, now, signal }: WatchOptions): Promise<Watched> {
  const phases = createPhaseClock();
  let last = '';
  for (;;) {
    signal.throwIfAborted();
    const run = await look(rotation);
    if (run !== null) {
      phases.see(run.status?.phase ?? null, run.status?.since ?? null);
      const line = watchLine(run);
      if (line !== last) say(line);
      last = line;
      if (run.state !== 'running') return ended(run, phases.end(run.closedAt));
      assertWorthWaiting(run, now());
      onLook(run);
    }
    await pause(lookEveryMs, signal);
  }
}

/** Worker keys of the ordinary 24 h were made here before: the old root stays until the last of them has died, whatever is configured. */
function assertWorthWaiting({ status }: RotationRun, now: number): void {
  if (status?.phase !== 'waiting-drop' || status.dropOpensAt === null || status.dropOpensAt - now <= longestWaitMs) return;
  throw new ControlError(
    'INVALID_STATE',
    `the old root can be dropped from ${showInstant(status.dropOpensAt)} only: a worker key of ordinary length was made in this state folder before`,
    {
      details: {
        reason: 'not-a-demonstration-folder',
        hint: 'the rotation itself is safe and goes on; for a demonstration, set BETTER_COMPUTE_HOME to a folder of its own',
      },
    },
  );
}

/** null while Temporal is away. */
async function look(rotation: RotationPort): Promise<RotationRun | null> {
  try {
    return await rotation.find();
  } catch (error) {
    if (isControlError(error) && error.code === 'UNAVAILABLE') return null;
    throw error;
  }
}

function ended(run: RotationRun, secondsPerPhase: Record<string, number>): Watched {
  if (run.state === 'completed') return { run, secondsPerPhase };
  throw new ControlError('INVALID_STATE', `the rotation ended as ${run.state}${run.failure === null ? '' : `: ${run.failure}`}`, {
    details: { reason: 'rotation-ended' },
  });
}

/** Phases say themselves since when they are; the time of one is from there to the next one seen. */
function createPhaseClock() {
  const times: Record<string, number> = {};
  let current: { phase: string; since: number } | null = null;
  const close = (at: number): void => {
    if (current !== null) times[current.phase] = Math.round((at - current.since) / 100) / 10;
  };
  return {
    see(phase: string | null, since: number | null): void {
      if (phase === null || since === null || phase === current?.phase || phase === 'done') return;
      close(since);
      current = { phase, since };
    },
    end(closedAt: number | null): Record<string, number> {
      if (closedAt !== null) close(closedAt);
      return times;
    },
  };
}

/** Resolves after `ms`, or at once when the signal is aborted. */
export const pause = (ms: number, signal: AbortSignal): Promise<void> => sleep(ms, undefined, { signal }).catch(() => undefined);
