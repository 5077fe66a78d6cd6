/** A rotation from its start, or from wherever it is, to its end: a line for each change, and how long each phase took. */
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
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
  readonly signal: AbortSignal;
}

const lookEveryMs = 300;

/** @throws the signal's reason when it is aborted; INVALID_STATE when the rotation ended badly */
export async function watchRotation({ rotation, say, onLook, signal }: WatchOptions): Promise<Watched> {
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
      onLook(run);
    }
    await pause(lookEveryMs, signal);
  }
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

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, Math.min(ms, 60 * second));
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}
