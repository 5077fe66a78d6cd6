/** The rotation workflow through the Temporal client: what `temporal` and the UI can do, with our errors and our words. */
import { type Client, type WorkflowExecutionDescription, WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';
import { failingSteps } from '../api/stuck-workflows.ts';
import { calling, rootFailure } from '../api/temporal-errors.ts';
import { ControlError } from '../domain/errors.ts';
import { taskQueues, workflowIds } from '../temporal.config.ts';
import * as approverMessages from '../workflows/rotate-approver-set/messages.ts';
import * as messages from '../workflows/rotate-command-root/messages.ts';
import { keyWorkflowId, keyWorkflows } from '../workflows/rotate-key/messages.ts';
import type { AnyResult, AnyRotationPort, AnyStatus, RotationPort, RotationRun, RunState } from './rotation-port.ts';
import { commandRoot, type RotationTarget, targetFlags } from './rotation-target.ts';
import { connectTemporal } from './temporal.ts';

/** A query needs a worker; without one the server would hold the call for long. */
const queryWithinMs = 5_000;

/** One of the workflows that understand the words of a rotation. */
interface Story {
  readonly type: string;
  readonly workflowId: string;
  readonly summary: string;
  /** What the commands call it. */
  readonly flags: string;
}

const what = 'the rotation';

const approverStory: Story = Object.freeze({
  type: 'rotateApproverSet',
  workflowId: workflowIds.rotateApproverSet,
  summary: approverMessages.staticSummary,
  flags: ' --key approvers',
});

const storyOf = (target: RotationTarget): Story =>
  target.key === 'approvers'
    ? approverStory
    : target.key === 'command-root'
      ? { type: 'rotateCommandRoot', workflowId: workflowIds.rotateCommandRoot, summary: messages.staticSummary, flags: '' }
      : {
          ...keyWorkflows[target.key],
          workflowId: keyWorkflowId(target.key, target.ca),
          flags: targetFlags(target),
        };

/** @throws UNAVAILABLE when Temporal does not answer */
export async function connectRotation(env: NodeJS.ProcessEnv): Promise<RotationPort> {
  const { client, close } = await connectTemporal(env);
  return { ...createRotationPort(client), close };
}

/** @throws UNAVAILABLE when Temporal does not answer */
export async function connectAnyRotation(env: NodeJS.ProcessEnv, target: RotationTarget): Promise<AnyRotationPort> {
  const { client, close } = await connectTemporal(env);
  return { ...createPort<AnyStatus, AnyResult>(client, storyOf(target)), close };
}

export const createRotationPort = (client: Client): Omit<RotationPort, 'close'> =>
  createPort<messages.RotationStatus, messages.RotationResult>(client, storyOf(commandRoot));

/** Starts the change that these signatures are for. @throws INVALID_STATE when one is running */
export async function startApproverSet(
  env: NodeJS.ProcessEnv,
  input: approverMessages.RotateApproverSetInput,
): Promise<{ workflowId: string; runId: string }> {
  const { client, close } = await connectTemporal(env);
  try {
    return await calling('a change of the approvers', async () => {
      const { workflowId, type, summary } = approverStory;
      const started = await client.workflow.start(type, {
        workflowId,
        taskQueue: taskQueues.control,
        args: [input],
        workflowIdConflictPolicy: 'FAIL',
        staticSummary: summary,
      });
      return { workflowId, runId: started.firstExecutionRunId };
    });
  } finally {
    await close();
  }
}

function createPort<Status, Result>(client: Client, story: Story): Omit<RotationPort<Status, Result>, 'close'> {
  const { workflowId } = story;
  const handle = (): WorkflowHandle => client.workflow.getHandle(workflowId);
  const update = (name: string, message: unknown): Promise<Status> =>
    calling(what, () => handle().executeUpdate<Status, [unknown]>(name, { args: [message] }));
  return {
    start: (message) =>
      calling('a rotation', async () => {
        if (story === approverStory) {
          throw new ControlError('INVALID_INPUT', 'a change of the approvers starts from its signatures', {
            details: { reason: 'needs-change', hint: 'better-compute approvers rotate --file <signed>[,<signed>]' },
          });
        }
        const started = await client.workflow.start(story.type, {
          workflowId,
          taskQueue: taskQueues.control,
          args: [message.reason === '' ? { actor: message.actor } : message],
          workflowIdConflictPolicy: 'FAIL',
          staticSummary: story.summary,
        });
        return { workflowId, runId: started.firstExecutionRunId };
      }),
    find: () => find<Status, Result>(client, story),
    force: (message) => update('force', message),
    exclude: (message) => update('exclude', message),
    abort: (message) => update('abort', message),
    pause: (message) => calling(what, () => handle().signal('pause', message)),
    resume: (message) => calling(what, () => handle().signal('resume', message)),
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

async function find<Status, Result>(client: Client, { workflowId, flags }: Story): Promise<RotationRun<Status, Result>> {
  const described = await calling(what, () => client.workflow.getHandle(workflowId).describe()).catch((error: unknown) => {
    if (error instanceof ControlError && error.code === 'NOT_FOUND') {
      throw new ControlError('NOT_FOUND', 'no rotation has been started', {
        details: { reason: 'no-rotation', hint: `better-compute rotation start${flags}` },
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
    status: await queryStatus<Status>(client, handle),
    waiting: (await failingSteps(client, described)).map(({ failure }) => failure)[0] ?? null,
    ...(await endOf<Result>(handle, described, state)),
  };
}

/** null without a worker: what the server knows is still worth showing. */
async function queryStatus<Status>(client: Client, handle: WorkflowHandle): Promise<Status | null> {
  try {
    return await client.connection.withDeadline(Date.now() + queryWithinMs, () => handle.query<Status>('status'));
  } catch {
    return null;
  }
}

async function endOf<Result>(
  handle: WorkflowHandle,
  described: WorkflowExecutionDescription,
  state: RunState,
): Promise<Pick<RotationRun<unknown, Result>, 'result' | 'failure'>> {
  if (state === 'running') return { result: null, failure: null };
  try {
    return { result: (await handle.result()) as Result, failure: null };
  } catch (error) {
    const cause = error instanceof WorkflowFailedError ? rootFailure(error.cause) : error;
    return { result: null, failure: cause instanceof Error ? cause.message : described.status.name.toLowerCase() };
  }
}
