/** Between our errors and Temporal's: a rule that refuses becomes a failure the sender sees, with the code as its type. */
import { ActivityFailure, ApplicationFailure, TimeoutFailure } from '@temporalio/common';
import { isCancellation } from '@temporalio/workflow';
import { type Code, codeOf, isCode, isControlError } from '../../domain/errors.ts';
import { isRecord } from './shape.ts';

/** The failure that ends a workflow or rejects an update; what is not ours stays what it is. */
export function toFailure(error: unknown): unknown {
  if (!isControlError(error)) return error;
  return ApplicationFailure.create({ message: error.message, type: codeOf(error), nonRetryable: true, details: [error.details] });
}

/** Runs a synchronous rule; its refusal leaves as a failure. For validators: a plain error there would fail the task. */
export function refusing<T>(rule: () => T): T {
  try {
    return rule();
  } catch (error) {
    throw toFailure(error);
  }
}

/** For a handler that calls an activity: its refusal reaches the sender as ours, not as "activity failed". */
export async function asOwnFailure<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    const refusal = findRefusal(error);
    if (refusal === undefined) throw error;
    const { code, message, reason } = refusal;
    throw ApplicationFailure.create({ message, type: code, nonRetryable: true, details: [{ reason }] });
  }
}

export interface Refusal {
  readonly code: Code;
  readonly message: string;
  /** Kebab-case, from the error's details; empty when it names none. */
  readonly reason: string;
}

/** What an activity's final failure says; undefined for a cancellation, which is no refusal. */
export function findRefusal(error: unknown): Refusal | undefined {
  if (isCancellation(error)) return undefined;
  const cause = error instanceof ActivityFailure ? error.cause : error;
  if (cause instanceof ApplicationFailure) {
    return { code: isCode(cause.type) ? cause.type : 'INTERNAL', message: cause.message, reason: reasonOf(cause) };
  }
  if (cause instanceof TimeoutFailure) return { code: 'UNAVAILABLE', message: cause.message, reason: '' };
  return undefined;
}

/** Details are a payload like any other: anything may stand there. */
function reasonOf({ details }: ApplicationFailure): string {
  const first: unknown = details?.[0];
  const reason = isRecord(first) ? first['reason'] : undefined;
  return typeof reason === 'string' ? reason : '';
}
