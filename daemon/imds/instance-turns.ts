/**
 * Whose question goes to the broker next. A session takes few questions at a time, and every instance of the machine asks over the same one:
 * each has at most one under way, those that wait take turns, and none asks oftener than the broker would answer it.
 */
import { ControlError } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import { workloadLimits } from '../../domain/workload/limits.ts';

export interface InstanceTurns {
  /** @throws RATE_LIMITED: `too-many-waiting`, or `too-often` beyond what the broker allows a minute */
  run<T>(instanceId: string, ask: () => Promise<T>): Promise<T>;
}

export const mostWaiting = 8;

export function createInstanceTurns({ steadyMs }: { readonly steadyMs: () => number }): InstanceTurns {
  /** Insertion order is the order of turns. */
  const waiting = new Map<string, (() => void)[]>();
  const underWay = new Set<string>();
  const count = createMinuteCount(steadyMs);
  const next = (): void => {
    for (const [instanceId, starts] of waiting) {
      if (underWay.size >= workloadLimits.underWayPerSession) return;
      if (underWay.has(instanceId)) continue;
      const start = starts.shift();
      waiting.delete(instanceId);
      // Whoever had a turn stands behind the others.
      if (starts.length > 0) waiting.set(instanceId, starts);
      underWay.add(instanceId);
      start?.();
    }
  };
  return {
    async run(instanceId, ask) {
      const starts = waiting.get(instanceId) ?? [];
      if (starts.length >= mostWaiting)
        throw limited('too-many-waiting', `${mostWaiting} questions of instance ${instanceId} wait already`);
      count(instanceId);
      await new Promise<void>((resolve) => {
        starts.push(resolve);
        waiting.set(instanceId, starts);
        next();
      });
      try {
        return await ask();
      } finally {
        underWay.delete(instanceId);
        next();
      }
    },
  };
}

function createMinuteCount(steadyMs: () => number): (instanceId: string) => void {
  const counts = new Map<string, number>();
  let startedMs = Number.NEGATIVE_INFINITY;
  return (instanceId) => {
    if (steadyMs() - startedMs >= minute) {
      counts.clear();
      startedMs = steadyMs();
    }
    const asked = counts.get(instanceId) ?? 0;
    if (asked >= workloadLimits.tokensPerMinute)
      throw limited('too-often', `instance ${instanceId} asked ${asked} times within a minute, which is all it may`);
    counts.set(instanceId, asked + 1);
  };
}

const limited = (reason: string, message: string): ControlError => new ControlError('RATE_LIMITED', message, { details: { reason } });
