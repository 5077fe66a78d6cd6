/** Workers for the exchange of a key in a test: the real workflows, the real activities, a world in memory. */
import type { Client, WorkflowHandle } from '@temporalio/client';
import { createKeyRotationControlActivities } from '../../activities/key-rotation-control.ts';
import { createKeyRotationSigningActivities } from '../../activities/key-rotation-signing.ts';
import { createRotationSigningActivities } from '../../activities/rotation-signing.ts';
import type { RenewedCa } from '../../domain/rotation/key-exchanges.ts';
import { taskQueues } from '../../temporal.config.ts';
import { type KeyRotationResult, type KeyRotationStatus, keyWorkflowId, keyWorkflows } from '../../workflows/rotate-key/messages.ts';
import { activitiesAlone, type TestTemporal } from '../harness/temporal.ts';
import type { KeyWorld } from './key-world.ts';
import { type RigOptions, type RunningWorkers, running } from './rotation-rig.ts';
import { RotationWorld } from './rotation-world.ts';

export type KeyHandle = WorkflowHandle<() => Promise<KeyRotationResult>>;

export interface KeyRigOptions extends RigOptions {
  /** That of the command roots' world: fresh, unless a test gives another. */
  readonly freshness?: RotationWorld;
}

export async function runKeyWorkers(
  temporal: TestTemporal,
  world: KeyWorld,
  { freshness = new RotationWorld(), activitiesOnly = false }: KeyRigOptions = {},
): Promise<RunningWorkers> {
  const control = await temporal.createWorker({
    taskQueue: taskQueues.control,
    activities: createKeyRotationControlActivities(world),
    ...(activitiesOnly ? activitiesAlone : {}),
  });
  const signing = await temporal.createWorker({
    taskQueue: taskQueues.signing,
    activities: { ...createRotationSigningActivities(freshness), ...createKeyRotationSigningActivities(world) },
    ...activitiesAlone,
  });
  return running([control, signing]);
}

export const idOf = ({ kind }: KeyWorld, subject: RenewedCa = 'node'): string => keyWorkflowId(kind, kind === 'ca' ? subject : '');

export const startExchange = (client: Client, world: KeyWorld, args: unknown[] = []): Promise<KeyHandle> =>
  client.workflow.start<() => Promise<KeyRotationResult>>(keyWorkflows[world.kind].type, {
    workflowId: idOf(world),
    taskQueue: taskQueues.control,
    args: args as [],
  });

/** Waits for a state of the workflow that the test names; the condition is asked, time is not measured. */
export async function untilKeyStatus(handle: KeyHandle, holds: (status: KeyRotationStatus) => boolean): Promise<KeyRotationStatus> {
  for (;;) {
    const status = await handle.query<KeyRotationStatus>('status').catch(() => undefined);
    if (status !== undefined && holds(status)) return status;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
