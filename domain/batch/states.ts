/**
 * The life of a batch (BAT-063): it waits for approvals, and then it is approved, or has expired, or was cancelled. A rejection by an
 * approver is a cancellation that says who rejected. How far an approved batch has come is counted from its commands, not kept.
 */
export const batchStates = Object.freeze(['pending', 'approved', 'expired', 'cancelled'] as const);

export type BatchState = (typeof batchStates)[number];

/** From → to. An end is never left again; an approved batch still ends at the close of its window (A-PKI-47) or by hand. */
const moves: Readonly<Record<BatchState, readonly BatchState[]>> = Object.freeze({
  pending: ['approved', 'expired', 'cancelled'],
  approved: ['expired', 'cancelled'],
  expired: [],
  cancelled: [],
});

export const isBatchState = (value: unknown): value is BatchState => batchStates.includes(value as BatchState);

export const mayMoveBatch = (from: BatchState, to: BatchState): boolean => moves[from].includes(to);

/** The state as it reads at `now`: a window that has closed is closed before anybody records it (BAT-058, A-PKI-47). */
export function batchStateAt({ state, notAfterMs }: { readonly state: BatchState; readonly notAfterMs: number }, now: number): BatchState {
  return now > notAfterMs && mayMoveBatch(state, 'expired') ? 'expired' : state;
}

/** Whether a command may still be put into it (BAT-012). */
export const takesCommands = (state: BatchState): boolean => state === 'pending' || state === 'approved';

/** A batch that needs no approval is approved as it is created (BAT-020). */
export const firstBatchState = (required: number): BatchState => (required === 0 ? 'approved' : 'pending');
