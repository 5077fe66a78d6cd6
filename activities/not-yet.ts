/**
 * Waiting without history: an activity that finds its condition unmet throws NOT_YET with the delay to its next attempt. The
 * server holds the wait; no worker slot is taken and no event is written, whether it takes a second or a month. The failure's
 * message and details say who is waited for, and `describe` shows them.
 */
import { activityInfo } from '@temporalio/activity';
import { ControlError } from '../domain/errors.ts';
import { second } from '../domain/time.ts';

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

const longestDelayMs = 15 * second;

/**
 * After an eighth of the time that was waited already: quick while someone is watching, and a machine that takes minutes to boot is not looked
 * at every second of them. Each look is an attempt of the server, a worker's slot and some statements, for every machine of a fleet.
 */
export const nextDelayMs = ({ elapsedMs }: Wait): number => Math.min(longestDelayMs, Math.max(second, Math.floor(elapsedMs / 8)));

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
