/**
 * Waiting without history: an activity that finds its condition unmet throws NOT_YET with the delay to its next attempt. The
 * server holds the wait; no worker slot is taken and no event is written, whether it takes a second or a month. The failure's
 * message and details say who is waited for, and `describe` shows them.
 */
import { activityInfo } from '@temporalio/activity';
import { ControlError } from '../domain/errors.ts';
import { minute, second } from '../domain/time.ts';

/** Elapsed wait → delay. Quick while someone is watching, then easy on the database. */
const delays: readonly (readonly [beforeMs: number, delayMs: number])[] = [
  [minute, second],
  [10 * minute, 5 * second],
];
const slowDelayMs = 15 * second;

/** Names kept in a failure's details. */
export const namesKept = 20;

export interface Wait {
  /** Since the activity was scheduled first, by the server's clock. */
  readonly elapsedMs: number;
}

/** Reads the wait of the running activity. Both instants are the server's, so a worker's wrong clock changes nothing. */
export function currentWait(): Wait {
  const info = activityInfo();
  return { elapsedMs: Math.max(0, info.currentAttemptScheduledTimestampMs - info.scheduledTimestampMs) };
}

export function nextDelayMs(wait: Wait): number {
  return delays.find(([beforeMs]) => wait.elapsedMs < beforeMs)?.[1] ?? slowDelayMs;
}

interface Unmet {
  readonly reason: string;
  readonly message: string;
  readonly behind?: readonly string[];
  readonly retryAfterMs?: number;
}

/** @throws ControlError NOT_YET, always */
export function notYet(unmet: Unmet, wait: Wait): never {
  throw new ControlError('NOT_YET', unmet.message, {
    details: {
      reason: unmet.reason,
      behind: (unmet.behind ?? []).slice(0, namesKept),
      retryAfterMs: unmet.retryAfterMs ?? nextDelayMs(wait),
    },
  });
}
