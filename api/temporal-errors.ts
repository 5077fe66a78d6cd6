/** What the Temporal client throws → errors of ours. The other direction, ours to Temporal's, is the workers'. */
import { ServiceError, WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError, WorkflowUpdateFailedError } from '@temporalio/client';
import { ActivityFailure, ApplicationFailure } from '@temporalio/common';
import { ControlError, isCode, isControlError } from '../domain/errors.ts';

/** @param what names the workflow the call was about */
export function fromTemporal(error: unknown, what: string): ControlError {
  if (isControlError(error)) return error;
  if (error instanceof WorkflowExecutionAlreadyStartedError) {
    return new ControlError('INVALID_STATE', `${what} is already running`, { details: { reason: 'already-running' }, cause: error });
  }
  if (error instanceof WorkflowNotFoundError) {
    return new ControlError('NOT_FOUND', `${what} is not running`, {
      details: { reason: 'not-running', hint: 'it has ended, or was never started: look at its status' },
      cause: error,
    });
  }
  if (error instanceof WorkflowUpdateFailedError) return fromFailure(error.cause, what);
  if (error instanceof ApplicationFailure) return fromFailure(error, what);
  return new ControlError('UNAVAILABLE', `Temporal did not answer for ${what}: ${reasonOf(error)}`, {
    details: { reason: 'temporal' },
    cause: error,
  });
}

/** Runs one call and translates what it throws. */
export async function calling<T>(what: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw fromTemporal(error, what);
  }
}

function fromFailure(failure: unknown, what: string): ControlError {
  const cause = rootFailure(failure);
  if (cause instanceof ApplicationFailure && isCode(cause.type)) {
    const [details] = (cause.details ?? []) as (Record<string, unknown> | undefined)[];
    return new ControlError(cause.type, cause.message, { details: details ?? {}, cause: failure });
  }
  return new ControlError('INVALID_STATE', `${what} refused: ${reasonOf(cause)}`, { details: { reason: 'refused' }, cause: failure });
}

/** A handler that calls an activity fails with the activity's failure, and that with what the activity threw. */
export const rootFailure = (failure: unknown): unknown => (failure instanceof ActivityFailure ? rootFailure(failure.cause) : failure);

/** gRPC says more in `details` than in the message around it. */
function reasonOf(error: unknown): string {
  const inner = error instanceof ServiceError ? error.cause : error;
  const details = (inner as { details?: unknown } | null | undefined)?.details;
  if (typeof details === 'string' && details !== '') return details;
  return inner instanceof Error ? inner.message : String(inner);
}
