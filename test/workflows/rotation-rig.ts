/** Workers for a rotation in a test: the real workflows, the real activities, a world in memory. */
import type { Client, WorkflowHandle } from '@temporalio/client';
import type { Worker } from '@temporalio/worker';
import { createRotationControlActivities } from '../../activities/rotation-control.ts';
import { createRotationSigningActivities } from '../../activities/rotation-signing.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import type { RotationResult, RotationStatus } from '../../workflows/rotate-command-root/messages.ts';
import { activitiesAlone, type TestTemporal } from '../harness/temporal.ts';
import type { RotationWorld } from './rotation-world.ts';

export type RotationHandle = WorkflowHandle<() => Promise<RotationResult>>;

export interface RunningWorkers {
  stop(): Promise<void>;
}

export interface RigOptions {
  /** The workflows run somewhere else (useWorkflows). */
  readonly activitiesOnly?: boolean;
}

export async function runRotationWorkers(
  temporal: TestTemporal,
  world: RotationWorld,
  { activitiesOnly = false }: RigOptions = {},
): Promise<RunningWorkers> {
  const control = await temporal.createWorker({
    taskQueue: taskQueues.control,
    activities: createRotationControlActivities(world),
    ...(activitiesOnly ? activitiesAlone : {}),
  });
  const signing = await temporal.createWorker({
    taskQueue: taskQueues.signing,
    activities: createRotationSigningActivities(world),
    ...activitiesAlone,
  });
  return running([control, signing]);
}

/** One pair of workers for many worlds: each call of an activity goes to the world of the moment. */
export const worldOf = (current: () => RotationWorld): RotationWorld =>
  new Proxy({} as RotationWorld, { get: (_, name) => Reflect.get(current(), name) as unknown });

export function running(workers: readonly Worker[]): RunningWorkers {
  const runs = workers.map((worker) => worker.run());
  let stopped: Promise<void> | undefined;
  return {
    stop: () => {
      stopped ??= (async () => {
        for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
        await Promise.all(runs);
      })();
      return stopped;
    },
  };
}

export const startRotation = (client: Client, args: unknown[] = []): Promise<RotationHandle> =>
  client.workflow.start('rotateCommandRoot', {
    workflowId: workflowIds.rotateCommandRoot,
    taskQueue: taskQueues.control,
    args,
  });

export const statusOf = (handle: RotationHandle): Promise<RotationStatus> => handle.query<RotationStatus>('status');

/** Waits for a state of the workflow that the test names; the condition is asked, time is not measured. */
export async function untilStatus(handle: RotationHandle, holds: (status: RotationStatus) => boolean): Promise<RotationStatus> {
  for (;;) {
    const status = await statusOf(handle).catch(() => undefined);
    if (status !== undefined && holds(status)) return status;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** EVENT_TYPE_WORKFLOW_EXECUTION_TIME_SKIPPING_TRANSITIONED: the one event that only the test clock writes. */
const skipType = '60';

/** Events that production would have too: the test clock's own do not count. */
export async function countEvents(handle: RotationHandle): Promise<{ total: number; types: Record<string, number> }> {
  const { events } = await handle.fetchHistory();
  const types: Record<string, number> = {};
  for (const event of events ?? []) {
    const type = String(event.eventType);
    types[type] = (types[type] ?? 0) + 1;
  }
  const skips = types[skipType] ?? 0;
  return { total: (events ?? []).length - skips, types };
}
