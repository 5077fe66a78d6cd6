/** The rotation workflow through the Temporal client: what `temporal` and the UI can do, with our errors and our words. */
import { type Client, type WorkflowExecutionDescription, WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';
import { calling, rootFailure } from '../api/temporal-errors.ts';
import { ControlError } from '../domain/errors.ts';
import { taskQueues, workflowIds } from '../temporal.config.ts';
import * as messages from '../workflows/rotate-command-root/messages.ts';
import type { RotationPort, RotationRun, RunState } from './rotation-port.ts';
import { connectTemporal } from './temporal.ts';

const workflowId = workflowIds.rotateCommandRoot;
const what = 'the rotation';
/** A query needs a worker; without one the server would hold the call for long. */
const queryWithinMs = 5_000;

/** @throws UNAVAILABLE when Temporal does not answer */
export async function connectRotation(env: NodeJS.ProcessEnv): Promise<RotationPort> {
  const { client, close } = await connectTemporal(env);
  return { ...createRotationPort(client), close };
}

export function createRotationPort(client: Client): Omit<RotationPort, 'close'> {
  const handle = (): WorkflowHandle => client.workflow.getHandle(workflowId);
  return {
    start: (message) =>
      calling('a rotation', async () => {
        const started = await client.workflow.start('rotateCommandRoot', {
          workflowId,
          taskQueue: taskQueues.control,
          args: [message.reason === '' ? { actor: message.actor } : message],
          workflowIdConflictPolicy: 'FAIL',
          staticSummary: messages.staticSummary,
        });
        return { workflowId, runId: started.firstExecutionRunId };
      }),
    find: () => find(client),
    force: (message) => calling(what, () => handle().executeUpdate(messages.force, { args: [message] })),
    exclude: (message) => calling(what, () => handle().executeUpdate(messages.exclude, { args: [message] })),
    abort: (message) => calling(what, () => handle().executeUpdate(messages.abort, { args: [message] })),
    pause: (message) => calling(what, () => handle().signal(messages.pause, message)),
    resume: (message) => calling(what, () => handle().signal(messages.resume, message)),
  };
}

const states: Readonly<Record<string, RunState>> = Object.freeze({
  RUNNING: 'running',
  PAUSED: 'running',
  CONTINUED_AS_NEW: 'running',
  COMPLETED: 'completed',
  FAILED: 'failed',
  CANCELLED: 'cancelled',
  TERMINATED: 'terminated',
  TIMED_OUT: 'timed-out',
});

async function find(client: Client): Promise<RotationRun> {
  const described = await calling(what, () => client.workflow.getHandle(workflowId).describe()).catch((error: unknown) => {
    if (error instanceof ControlError && error.code === 'NOT_FOUND') {
      throw new ControlError('NOT_FOUND', 'no rotation has been started', {
        details: { reason: 'no-rotation', hint: 'better-compute rotation start' },
      });
    }
    throw error;
  });
  // This run and no later one, or the answers would not belong together.
  const handle = client.workflow.getHandle(workflowId, described.runId);
  const state = states[described.status.name] ?? 'running';
  return {
    workflowId,
    runId: described.runId,
    state,
    startedAt: described.startTime.getTime(),
    closedAt: described.closeTime?.getTime() ?? null,
    status: await queryStatus(client, handle),
    ...(await endOf(handle, described, state)),
  };
}

/** null without a worker: what the server knows is still worth showing. */
async function queryStatus(client: Client, handle: WorkflowHandle): Promise<messages.RotationStatus | null> {
  try {
    return await client.connection.withDeadline(Date.now() + queryWithinMs, () => handle.query(messages.status));
  } catch {
    return null;
  }
}

async function endOf(
  handle: WorkflowHandle,
  described: WorkflowExecutionDescription,
  state: RunState,
): Promise<Pick<RotationRun, 'result' | 'failure'>> {
  if (state === 'running') return { result: null, failure: null };
  try {
    return { result: (await handle.result()) as messages.RotationResult, failure: null };
  } catch (error) {
    const cause = error instanceof WorkflowFailedError ? rootFailure(error.cause) : error;
    return { result: null, failure: cause instanceof Error ? cause.message : described.status.name.toLowerCase() };
  }
}
