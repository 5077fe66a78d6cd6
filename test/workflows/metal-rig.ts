/** Workers for runs on machines in a test: the real workflows, the real activities, a site in memory. */
import type { Client, WorkflowHandle } from '@temporalio/client';
import type { BatchControlActivities } from '../../activities/batches-control.ts';
import { translated } from '../../activities/failures.ts';
import { createMetalControlActivities } from '../../activities/metal-control.ts';
import { createMetalSigningActivities } from '../../activities/metal-signing.ts';
import { notYet } from '../../activities/not-yet.ts';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import type { RunResult, RunStatus } from '../../workflows/shared/machine-messages.ts';
import type { TestTemporal } from '../harness/temporal.ts';
import { testProfile } from './metal-rows.ts';
import type { MetalWorld } from './metal-world.ts';
import { type RunningWorkers, running } from './rotation-rig.ts';

export type RunHandle = WorkflowHandle<() => Promise<RunResult>>;

/** The decision of a batch, as the world says it. */
const batchActivities = (world: MetalWorld): Pick<BatchControlActivities, 'awaitDecision' | 'cancelBatch'> =>
  translated({
    awaitDecision: async ({ batchId }: { batchId: string }) =>
      world.approval.state === 'pending'
        ? notYet({ reason: 'awaiting-approval', message: batchId, retryAfterMs: 200 }, { elapsedMs: 0 })
        : { batchId, state: world.approval.state, endedBecause: 'a test' },
    cancelBatch: async ({ batchId }: { batchId: string }) => {
      world.cancelledBatches.push(batchId);
      return { batchId, state: 'cancelled' };
    },
  }) as unknown as Pick<BatchControlActivities, 'awaitDecision' | 'cancelBatch'>;

export async function runMetalWorkers(temporal: TestTemporal, world: MetalWorld): Promise<RunningWorkers> {
  const control = await temporal.createWorker({
    taskQueue: taskQueues.control,
    activities: { ...createMetalControlActivities(world), ...batchActivities(world) },
  });
  const signing = await temporal.createWorker({
    taskQueue: taskQueues.signing,
    activities: createMetalSigningActivities(world),
    workflowBundle: undefined as never,
  });
  return running([control, signing]);
}

export const types: Readonly<Record<RunKind, string>> = {
  provision: 'provisionMachine',
  retire: 'retireMachine',
  inspect: 'inspectMachine',
  'rotate-bmc': 'rotateBmcCredentials',
};

export const words = { actor: 'ann', reason: 'a test' };

export interface StartOptions {
  readonly machineId?: string;
  readonly over?: Readonly<Record<string, unknown>>;
}

export const startRun = (client: Client, kind: RunKind, { machineId = 'm1', over = {} }: StartOptions = {}): Promise<RunHandle> =>
  client.workflow.start(types[kind], {
    workflowId: workflowIds.machineRun(machineId, kind),
    taskQueue: taskQueues.control,
    args: [{ machineId, ...words, ...(kind === 'provision' || kind === 'retire' ? { profile: testProfile() } : {}), ...over }],
  });

export const statusOf = (handle: RunHandle): Promise<RunStatus> => handle.query<RunStatus>('status');

export async function untilRun(handle: RunHandle, holds: (status: RunStatus) => boolean): Promise<RunStatus> {
  for (;;) {
    const status = await statusOf(handle).catch(() => undefined);
    if (status !== undefined && holds(status)) return status;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
