/**
 * Schedule bc-reconcile-batches: records what expired, cancels what is held without hope, and starts the workflow of a batch that nobody
 * watches: the api may have stopped between its transaction and the start, or somebody terminated it. No input.
 */
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import { log, ParentClosePolicy, proxyActivities, startChild, WorkflowIdReusePolicy } from '@temporalio/workflow';
import type { BatchControlActivities } from '../../activities/batches-control.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { staticSummary } from '../approve-batch/messages.ts';
import { onControl } from '../shared/activity-options.ts';
import { versioned } from '../shared/versioning.ts';

const activities = proxyActivities<BatchControlActivities>({
  ...onControl,
  startToCloseTimeout: '50 seconds',
  scheduleToCloseTimeout: '5 minutes',
});

/** Started in one run; the next run takes the rest. */
const startedPerRun = 25;

export interface BatchesReconciled {
  readonly expired: number;
  readonly commands: number;
  readonly started: number;
}

export async function reconcileBatches(): Promise<BatchesReconciled> {
  const { unwatched, ...done } = await activities.reconcileBatches();
  let started = 0;
  for (const batchId of unwatched.slice(0, startedPerRun)) if (await start(batchId)) started += 1;
  return { ...done, started };
}
versioned('AUTO_UPGRADE', reconcileBatches);

/** A batch whose workflow was terminated needs one again: its id may be used a second time, but never twice at once. */
async function start(batchId: string): Promise<boolean> {
  try {
    await startChild('approveBatch', {
      workflowId: workflowIds.approveBatch(batchId),
      taskQueue: taskQueues.control,
      args: [{ batchId }],
      parentClosePolicy: ParentClosePolicy.ABANDON,
      workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
      staticSummary,
    });
    return true;
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    log.info('the batch is watched already', { batchId });
    return false;
  }
}
