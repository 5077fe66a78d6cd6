/** How batches refuse, in one place: the same words from every call. */
import type { BatchState } from '../../domain/batch/states.ts';
import { ControlError } from '../../domain/errors.ts';

export const unknownBatch = (batchId: string): ControlError<'NOT_FOUND'> =>
  new ControlError('NOT_FOUND', `no batch is called ${batchId.slice(0, 128)}`, {
    details: { reason: 'unknown-batch', batchId: batchId.slice(0, 128) },
  });

export const notOpen = (batchId: string, state: BatchState, what: string): ControlError<'INVALID_STATE'> =>
  new ControlError('INVALID_STATE', `batch ${batchId} is ${state}: ${what}`, { details: { reason: 'not-pending', batchId, state } });

/** The published set asks for more than the batch holds (A-PKI-46). */
export const tooFewApprovals = (batchId: string, { have, required }: { have: number; required: number }): ControlError<'INVALID_STATE'> =>
  new ControlError(
    'INVALID_STATE',
    `batch ${batchId} holds ${have} of the ${required} approvals that the published set asks for: machines would refuse it; approve it further`,
    { details: { reason: 'too-few-approvals', batchId, have, required } },
  );
