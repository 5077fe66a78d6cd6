/**
 * The message handlers of a batch. Whoever may write to the namespace may send them: an approval counts when the database's service
 * has verified it, and every other message can only end the batch or make the workflow look again.
 *
 * Validators are synchronous and throw failures only; the update's handler may fail, and tells the sender why; signals come through the
 * inbox.
 */
import type { UpdateDefinition } from '@temporalio/common';
import { proxyActivities, setHandler, workflowInfo } from '@temporalio/workflow';
import type { BatchControlActivities } from '../../activities/batches-control.ts';
import { onControl } from '../shared/activity-options.ts';
import { asOwnFailure, refusing } from '../shared/failures.ts';
import { isFlooded, listen, onSignals } from '../shared/inbox.ts';
import * as messages from './messages.ts';
import type { BatchRun } from './state.ts';

const { recordApproval } = proxyActivities<BatchControlActivities>(onControl);

export interface BatchHooks {
  /** Writes the current details. */
  readonly show: () => void;
  /** Ends the wait of the main line, so that it looks at the state. */
  readonly wake: () => void;
}

export function installBatchHandlers(run: BatchRun, { show, wake }: BatchHooks): void {
  setHandler(messages.status, () => run.status(), { description: 'Phase, who approved, what remains, how far the release is' });
  setHandler(messages.scopePage, (request) => run.page(request), {
    description: `The first leaves of the scope (at most ${messages.leavesKept}, 256 KiB), in pages {after, limit}`,
  });
  const record = async (approval: messages.ApprovalMessage): Promise<messages.BatchStatus> => {
    run.take(
      await asOwnFailure(() =>
        recordApproval.executeWithOptions({ summary: `approval by ${approval.kid.slice(0, 16)}` }, [{ batchId: run.batchId, ...approval }]),
      ),
    );
    show();
    wake();
    return run.status();
  };
  setHandler(messages.approve as UpdateDefinition<messages.BatchStatus, [unknown]>, async (value) => record(run.readApproval(value)), {
    validator: (value) => {
      refusing(() => run.readApproval(value));
    },
    description: 'A signed approval {kid, sig}; better-compute batch sign makes it',
  });
  listen({
    signal: messages.approveSignal,
    description: 'The same without an answer, for hours in which no worker runs',
    read: (value) => run.readApproval(value),
    take: record,
    keep: (approval) => run.keepApproval(approval),
  });
  listen({
    signal: messages.approvalRecorded,
    description: 'Look at the database again',
    read: () => undefined,
    take: () => {
      if (run.pending && run.nudge()) wake();
    },
  });
  for (const [as, signal] of [
    ['cancel', messages.cancel],
    ['reject', messages.reject],
  ] as const) {
    listen({
      signal,
      description: `${as} the batch {actor, reason}; what is held is cancelled, what went out is not`,
      read: (value) => messages.parseBatchWords(as, value),
      take: (words) => {
        if (as === 'reject') run.assertWaits('reject');
        run.ending ??= { ...words, as: as === 'reject' ? 'rejected' : 'cancelled' };
        wake();
      },
    });
  }
  onSignals(() => {
    show();
    if (mustGoOn()) wake();
  });
}

/**
 * The main line waits without history; messages are history, and it has to go on as a new run before there is too much of it. That run
 * counts its signals anew.
 */
export const mustGoOn = (): boolean => workflowInfo().continueAsNewSuggested || isFlooded();
