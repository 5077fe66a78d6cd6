/**
 * From our errors to Temporal's, in one place: the code becomes the failure's type, and the error table decides whether a
 * retry can help. What is not a ControlError (a lost connection, a bug) is retried: a repaired database or a fixed release
 * then lets the workflow go on, where a final failure would have ended it half way.
 *
 * NOT_YET is a wait, not a fault: BENIGN keeps it out of the error metrics, and it names its own next attempt.
 */
import { CompleteAsyncError } from '@temporalio/activity';
import { ApplicationFailure, ApplicationFailureCategory, TemporalFailure } from '@temporalio/common';
import { type ControlError, errorTable, isControlError } from '../domain/errors.ts';

/** The delay of a NOT_YET that names none. */
const defaultDelayMs = 5_000;

/** Refusals that the next attempt may well not meet, whatever the table says of their code. */
const passing = new Set([
  'bundle-busy',
  'bundle-locked',
  'node-changed',
  // H-07: another worker of the queue may be the current one, and this one is again once the bundle or the database is restored.
  'bundle-replaced',
  'database-behind-fleet',
]);

const isFinal = (error: ControlError): boolean =>
  !errorTable[error.code].retryable && error.code !== 'INTERNAL' && !passing.has(String(error.details['reason']));

/** @returns what to throw out of an activity */
export function toApplicationFailure(error: unknown): Error {
  if (error instanceof TemporalFailure || error instanceof CompleteAsyncError) return error;
  if (!isControlError(error)) {
    return ApplicationFailure.create({ message: messageOf(error), type: 'INTERNAL', nonRetryable: false, ...causeOf(error) });
  }
  const waits = error.code === 'NOT_YET';
  return ApplicationFailure.create({
    message: error.message,
    type: error.code,
    nonRetryable: isFinal(error),
    details: [error.details],
    ...(waits ? { category: ApplicationFailureCategory.BENIGN, nextRetryDelay: delayOf(error) } : {}),
  });
}

type Activity = (...args: never[]) => Promise<unknown>;

/** Every function of `activities` with its errors translated. */
export function translated<T extends Record<string, Activity>>(activities: T): T {
  const entries = Object.entries(activities).map(([name, run]) => [
    name,
    async (...args: never[]) => {
      try {
        return await run(...args);
      } catch (error) {
        throw toApplicationFailure(error);
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
