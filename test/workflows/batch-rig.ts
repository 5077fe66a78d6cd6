/** Workers for batches in a test: the real workflows, the real activities, a world in memory. */
import type { Client, WorkflowHandle } from '@temporalio/client';
import { createBatchControlActivities } from '../../activities/batches-control.ts';
import { createBatchSigningActivities } from '../../activities/batches-signing.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import type { BatchResult, BatchStatus } from '../../workflows/approve-batch/messages.ts';
import { activitiesAlone, type TestTemporal } from '../harness/temporal.ts';
import type { BatchWorld } from './batch-world.ts';
import { type RigOptions, type RunningWorkers, running } from './rotation-rig.ts';

export type BatchHandle = WorkflowHandle<() => Promise<BatchResult>>;

export async function runBatchWorkers(
  temporal: TestTemporal,
  world: BatchWorld,
  { activitiesOnly = false }: RigOptions = {},
): Promise<RunningWorkers> {
  const control = await temporal.createWorker({
    taskQueue: taskQueues.control,
    activities: createBatchControlActivities(world),
    ...(activitiesOnly ? activitiesAlone : {}),
  });
  const signing = await temporal.createWorker({
    taskQueue: taskQueues.signing,
    activities: createBatchSigningActivities(world),
    ...activitiesAlone,
  });
  return running([control, signing]);
}

export const startBatch = (client: Client, batchId: string, args: unknown[] = [{ batchId }]): Promise<BatchHandle> =>
  client.workflow.start('approveBatch', { workflowId: workflowIds.approveBatch(batchId), taskQueue: taskQueues.control, args });

/** Waits for a state of the workflow that the test names; the condition is asked, time is not measured. */
export async function untilBatch(handle: BatchHandle, holds: (status: BatchStatus) => boolean): Promise<BatchStatus> {
  for (;;) {
    const status = await handle.query<BatchStatus>('status').catch(() => undefined);
    if (status !== undefined && holds(status)) return status;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export const waitsForApprovals = (handle: BatchHandle): Promise<BatchStatus> =>
  untilBatch(handle, ({ phase }) => phase === 'waiting-approvals');
