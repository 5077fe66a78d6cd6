/**
 * The message handlers of a batch. Whoever may write to the namespace may send them: an approval counts when the database's service
 * has verified it, and every other message can only end the batch or make the workflow look again.
 *
 * Validators are synchronous and throw failures only; the update's handler may fail, and tells the sender why; signal handlers never
 * throw, because a failure in one would end the workflow.
 */
import type { SignalDefinition, UpdateDefinition } from '@temporalio/common';
import { log, proxyActivities, setDefaultSignalHandler, setHandler, workflowInfo } from '@temporalio/workflow';
import type { BatchControlActivities } from '../../activities/batches-control.ts';
import { onControl } from '../shared/activity-options.ts';
import { asOwnFailure, refusing } from '../shared/failures.ts';
import * as messages from './messages.ts';
import type { BatchRun } from './state.ts';

const { recordApproval } = proxyActivities<BatchControlActivities>(onControl);

type SignalFromAnyone = SignalDefinition<[unknown]>;

export interface BatchHooks {
  /** Writes the current details. */
  readonly show: () => void;
  /** Ends the wait of the main line, so that it looks at the state. */
  readonly wake: () => void;
}

export function installBatchHandlers(run: BatchRun, { show, wake }: BatchHooks): void {
  setHandler(messages.status, () => run.status(), { description: 'Phase, who approved, what remains, how far the release is' });
  setHandler(messages.scopePage, (request) => run.page(request), {
    description: `The first ${messages.leavesKept} leaves of the scope, in pages {after, limit}`,
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
  const listen = (signal: { readonly name: string }, description: string, handle: (value: unknown) => unknown): void =>
    setHandler(signal as SignalFromAnyone, (value) => quietly({ name: signal.name, wake }, async () => handle(value)), { description });
  listen(messages.approveSignal, 'The same without an answer, for hours in which no worker runs', (value) =>
    record(run.readApproval(value)),
  );
  listen(messages.approvalRecorded, 'Look at the database again', () => {
    if (run.pending && run.nudge()) wake();
  });
  for (const [as, signal] of [
    ['cancel', messages.cancel],
    ['reject', messages.reject],
  ] as const) {
    listen(signal, `${as} the batch {actor, reason}; what is held is cancelled, what went out is not`, (value) => {
      const words = messages.parseBatchWords(as, value);
      if (as === 'reject') run.assertWaits('reject');
      run.ending ??= { ...words, as: as === 'reject' ? 'rejected' : 'cancelled' };
      wake();
    });
  }
  setDefaultSignalHandler((name) => {
    log.warn('dropped a signal of unknown name', { signal: name.slice(0, 100) });
    wakeIfLong(wake);
  });
}

/** The main line waits without history; messages are history, and it has to go on as a new run before there is too much of it. */
function wakeIfLong(wake: () => void): void {
  if (workflowInfo().continueAsNewSuggested) wake();
}

async function quietly({ name, wake }: { name: string; wake: () => void }, handle: () => Promise<unknown>): Promise<void> {
  try {
    wakeIfLong(wake);
    await handle();
  } catch (error) {
    log.warn(`ignored the signal ${name}`, { why: error instanceof Error ? error.message.slice(0, 500) : 'not an error' });
  }
}
