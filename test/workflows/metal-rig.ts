/** Workers for runs on machines in a test: the real workflows, the real activities, a site in memory. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Client, WorkflowHandle } from '@temporalio/client';
import type { BatchControlActivities } from '../../activities/batches-control.ts';
import { translated } from '../../activities/failures.ts';
import { createMetalControlActivities } from '../../activities/metal-control.ts';
import type { MetalControlPorts, MetalSigningPorts } from '../../activities/metal-ports.ts';
import { createMetalSigningActivities } from '../../activities/metal-signing.ts';
import { notYet } from '../../activities/not-yet.ts';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import type { RunResult, RunStatus } from '../../workflows/shared/machine-messages.ts';
import { activitiesAlone, type TestTemporal } from '../harness/temporal.ts';
import { testProfile } from './metal-rows.ts';
import type { MetalWorld } from './metal-world.ts';
import { type RigOptions, type RunningWorkers, running } from './rotation-rig.ts';

export type RunHandle = WorkflowHandle<() => Promise<RunResult>>;

/** The decision of a batch, as the world says it. */
const batchActivities = (world: MetalWorld): Pick<BatchControlActivities, 'awaitDecision' | 'cancelBatch'> =>
  translated({
    awaitDecision: async ({ batchId }: { batchId: string }) =>
      world.decision(batchId) === 'pending'
        ? notYet({ reason: 'awaiting-approval', message: batchId, retryAfterMs: 200 }, { elapsedMs: 0 })
        : { batchId, state: world.decision(batchId), endedBecause: 'a test' },
    cancelBatch: async ({ batchId }: { batchId: string }) => {
      world.cancelledBatches.push(batchId);
      return { batchId, state: 'cancelled' };
    },
  }) as unknown as Pick<BatchControlActivities, 'awaitDecision' | 'cancelBatch'>;

export interface MetalRigOptions extends RigOptions {
  /** Instead of the world's own. */
  readonly ports?: MetalControlPorts & MetalSigningPorts;
}

export async function runMetalWorkers(
  temporal: TestTemporal,
  world: MetalWorld,
  { ports = world, activitiesOnly = false }: MetalRigOptions = {},
): Promise<RunningWorkers> {
  const control = await temporal.createWorker({
    taskQueue: taskQueues.control,
    activities: { ...createMetalControlActivities(ports), ...batchActivities(world) },
    ...(activitiesOnly ? activitiesAlone : {}),
  });
  const signing = await temporal.createWorker({
    taskQueue: taskQueues.signing,
    activities: createMetalSigningActivities(ports),
    ...activitiesAlone,
  });
  return running([control, signing]);
}

export interface WorkflowWorker {
  end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
}

/** The workflows in a process that can be killed; activities are the caller's. */
export async function startWorkflowWorker(temporal: TestTemporal): Promise<WorkflowWorker> {
  const program = fileURLToPath(new URL('workflow-worker.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import=tsx', program, temporal.address], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const first = await Promise.race([once(child.stdout, 'data'), ended]);
  if (String(first[0]).trim() !== 'ready') throw new Error(`the workflow worker ended before it was ready: ${first.join()}`);
  return {
    end: async (signal) => {
      child.kill(signal);
      await ended;
    },
  };
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
