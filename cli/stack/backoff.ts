/** How long to wait before a process that ended is started again: doubling, and from the beginning after a good while. */
import { second } from '../../domain/time.ts';

const firstMs = second / 2;
const longestMs = 10 * second;
const goodWhileMs = 30 * second;

export interface Backoff {
  /** @param ranMs how long it had been running before it ended */
  next(ranMs: number): number;
}

export function createBackoff(): Backoff {
  let waitMs = firstMs;
  return {
    next: (ranMs) => {
      if (ranMs >= goodWhileMs) waitMs = firstMs;
      const now = waitMs;
      waitMs = Math.min(waitMs * 2, longestMs);
      return now;
    },
  };
}
