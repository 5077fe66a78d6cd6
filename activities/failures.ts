/**
 * From our errors to Temporal's, in one place: the code becomes the failure's type, and the error table decides whether a
 * retry can help. What is not a ControlError (a lost connection, a bug) is retried: a repaired database or a fixed release
 * then lets the workflow go on, where a final failure would have ended it half way.
 *
 * NOT_YET is a wait, not a fault: BENIGN keeps it out of the error metrics, and it names its own next attempt.
 *
 * A refusal that only a repair outside ends (`repairable`) is tried a few times, because another worker of the queue may be the
 * right one. A caller that can hold is then told; one that cannot goes on trying.
 */
import { activityInfo, CompleteAsyncError } from '@temporalio/activity';
import { ApplicationFailure, ApplicationFailureCategory, TemporalFailure } from '@temporalio/common';
import { type ControlError, errorTable, isControlError } from '../domain/errors.ts';

/** The delay of a NOT_YET that names none. */
const defaultDelayMs = 5_000;

/** Refusals that the next attempt may well not meet, whatever the table says of their code. */
const passing = new Set(['bundle-busy', 'bundle-locked', 'node-changed']);
/** H-07: another worker of the queue may be the current one, and this one is again once the bundle or the database is restored. */
const repairable = new Set(['bundle-replaced', 'database-behind-fleet']);

export interface Translation {
  /** This attempt is the last that a repairable refusal gets; false: it is tried for as long as it takes. */
  readonly reportsRepairable: boolean;
}

const isFinal = (error: ControlError, { reportsRepairable }: Translation): boolean => {
  const reason = String(error.details['reason']);
  if (error.code === 'STALE_BUNDLE' && repairable.has(reason)) return reportsRepairable;
  return !errorTable[error.code].retryable && error.code !== 'INTERNAL' && !passing.has(reason);
};

/** No repetition changes the answer. */
export const isRefusal = (error: unknown): boolean => isControlError(error) && isFinal(error, { reportsRepairable: false });

/** @returns what to throw out of an activity */
export function toApplicationFailure(error: unknown, translation: Translation = { reportsRepairable: false }): Error {
  if (error instanceof TemporalFailure || error instanceof CompleteAsyncError) return error;
  if (!isControlError(error)) {
    return ApplicationFailure.create({ message: messageOf(error), type: 'INTERNAL', nonRetryable: false, ...causeOf(error) });
  }
  const waits = error.code === 'NOT_YET';
  return ApplicationFailure.create({
    message: error.message,
    type: error.code,
    nonRetryable: isFinal(error, translation),
    details: [error.details],
    ...(waits ? { category: ApplicationFailureCategory.BENIGN, nextRetryDelay: delayOf(error) } : {}),
  });
}

type Activity = (...args: never[]) => Promise<unknown>;

/** Every function of `activities` with its errors translated; a repairable refusal is tried for as long as it takes. */
export const translated = <T extends Record<string, Activity>>(activities: T): T => translateAll(activities, () => false);

/** Some seconds, at the steps' own pace: as long as a restart or a copied file takes. */
const attemptsBeforeReport = 4;

/** The same for a workflow that can hold: a repairable refusal is tried a few times, then reported to it. */
export const translatedForHolder = <T extends Record<string, Activity>>(activities: T): T =>
  translateAll(activities, () => activityInfo().attempt >= attemptsBeforeReport);

function translateAll<T extends Record<string, Activity>>(activities: T, reportsRepairable: () => boolean): T {
  const entries = Object.entries(activities).map(([name, run]) => [
    name,
    async (...args: never[]) => {
      try {
        return await run(...args);
      } catch (error) {
        throw toApplicationFailure(error, { reportsRepairable: reportsRepairable() });
      }
    },
  ]);
  return Object.freeze(Object.fromEntries(entries)) as T;
}

function delayOf(error: ControlError): number {
  const value = error.details['retryAfterMs'];
  return typeof value === 'number' && Number.isFinite(value) ? Math.max(200, value) : defaultDelayMs;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : `not an error: ${typeof error}`);
const causeOf = (error: unknown): { cause?: Error } => (error instanceof Error ? { cause: error } : {});
