/**
 * When to dial again: pure. Exponential with full jitter, so that a fleet that lost its gateway in one instant comes back spread
 * out (B33, B35). A gateway's own wish is honoured once and capped; then it is our schedule again. A session that held
 * for a while resets the schedule; one that ended at once does not, whatever the gateway said in between.
 */
import { minute, second } from '../../domain/time.ts';

export interface BackoffState {
  /** Dials in a row without a session that held. */
  readonly failures: number;
}

export const freshBackoff: BackoffState = Object.freeze({ failures: 0 });

export interface BackoffLimits {
  readonly baseMs: number;
  readonly capMs: number;
  readonly pushbackCapMs: number;
  /** A session that was welcomed this long has held. */
  readonly heldMs: number;
}

export const backoffLimits: BackoffLimits = Object.freeze({
  baseMs: second,
  capMs: minute,
  pushbackCapMs: 5 * minute,
  heldMs: 30 * second,
});

export interface DialEnd {
  /** How long the session was welcomed; 0 when it never was. */
  readonly heldMs: number;
  /** The gateway's wish with this end; null for none. */
  readonly pushbackMs: number | null;
  /** From the last Welcome: unplanned losses spread their first redial over this. */
  readonly reconnectWindowMs: number;
}

export interface BackoffOptions {
  /** In [0, 1). */
  readonly random: () => number;
  readonly limits?: BackoffLimits;
}

export function nextDial(
  state: BackoffState,
  end: DialEnd,
  { random, limits = backoffLimits }: BackoffOptions,
): { state: BackoffState; delayMs: number } {
  const held = end.heldMs >= limits.heldMs;
  const failures = held ? 0 : state.failures;
  const spread = Math.min(limits.capMs, limits.baseMs * 2 ** Math.min(failures, 16));
  const windowMs = held ? Math.min(Math.max(end.reconnectWindowMs, limits.baseMs), limits.pushbackCapMs) : spread;
  const wishMs = end.pushbackMs === null ? 0 : Math.min(end.pushbackMs, limits.pushbackCapMs);
  return { state: { failures: failures + 1 }, delayMs: Math.round(wishMs + windowMs * random()) };
}
