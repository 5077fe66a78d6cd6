/**
 * The story of every run of a command: where approvers guard the fleet, a batch first (BAT-030); then enqueue, then wait for the ends.
 *
 * The command's id is made of the workflow's id and run, so a repeated step never sends twice. Few nodes: one activity each, whose id
 * is the command's id, completed by the relay. Many nodes: one activity that asks the database and costs no history. Cancelling the
 * workflow cancels the commands that have not started, and the batch that holds them.
 */

import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  allHandlersFinished,
  CancellationScope,
  condition,
  isCancellation,
  log,
  ParentClosePolicy,
  patched,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  startChild,
} from '@temporalio/workflow';
import type { BatchProducerActivities } from '../../activities/batch-producers.ts';
import type { BatchControlActivities } from '../../activities/batches-control.ts';
import type { CommandControlActivities } from '../../activities/commands-control.ts';
import type { CommandSigningActivities } from '../../activities/commands-signing.ts';
import type { WavePlan } from '../../domain/batch/waves.ts';
import { commandKinds } from '../../domain/commands/kinds.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { staticSummary as batchSummary } from '../approve-batch/messages.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { showPhase } from '../shared/attributes.ts';
import { awaitedOneByOne, type CommandTally, type RunCommandResult, status } from './messages.ts';
import type { RunCommandState } from './state.ts';

const control = proxyActivities<CommandControlActivities & Pick<BatchControlActivities, 'cancelBatch'>>(onControl);
const { batchCommands } = proxyActivities<BatchProducerActivities>({ ...onControl, startToCloseTimeout: '2 minutes' });
const { enqueueCommands } = proxyActivities<CommandSigningActivities>({
  ...onSigning,
  startToCloseTimeout: '30 minutes',
  heartbeatTimeout: '20 seconds',
});
/** The relay heartbeats while the node is connected; a silent one only costs the next attempt, which reads the table. */
const { awaitCommand } = proxyActivities<CommandControlActivities>({
  ...onControl,
  startToCloseTimeout: '5 minutes',
  heartbeatTimeout: '1 minute',
});

export interface BatchWish {
  /** A batch also where no approver is asked: for its record and its waves. */
  readonly always: boolean;
  readonly waves: WavePlan | null;
}

const asNeeded: BatchWish = Object.freeze({ always: false, waves: null });

export async function runInBatch(state: RunCommandState, wish: BatchWish = asNeeded): Promise<RunCommandResult> {
  setHandler(status, () => state.status(), { description: 'How many commands are enqueued and finished' });
  try {
    await enqueue(state, wish);
    const tally =
      state.listed !== null && state.listed.length <= awaitedOneByOne ? await awaitEach(state, state.listed) : await awaitAll(state);
    enter(state, 'done');
    await condition(allHandlersFinished);
    const { batchId } = state;
    return { ...tally, kind: state.input.kind, commandPrefix: state.commandPrefix, ...(batchId === null ? {} : { batchId }) };
  } catch (error) {
    if (isCancellation(error)) await CancellationScope.nonCancellable(() => cancel(state));
    throw error;
  }
}

async function enqueue(state: RunCommandState, wish: BatchWish): Promise<void> {
  enter(state, 'enqueueing');
  const { kind, nodes, payload, actor } = state.input;
  const { commandPrefix } = state;
  await findBatch(state, wish);
  const { batchId, deadline } = state;
  state.enqueued = (
    await enqueueCommands.executeWithOptions({ summary: `${kind} on ${state.target}` }, [
      { commandPrefix, kind, nodes, payload, deadline, requestedBy: actor, ...(batchId === null ? {} : { batchId }) },
    ])
  ).total;
  if (batchId !== null && state.makesBatch) await watchBatch(batchId);
  enter(state, 'running');
}

/** The batch that was named, one that is made here, or none. Runs from before there were batches go on without. */
async function findBatch(state: RunCommandState, { always, waves }: BatchWish): Promise<void> {
  const { kind, nodes, payload, actor, batchId, windowMs } = state.input;
  if (batchId !== null) state.batchId = batchId;
  if (batchId !== null || !(always || (commandKinds[kind].destructive && patched('destructive-commands-in-a-batch')))) return;
  const { commandPrefix, approversReason: reason } = state;
  const { batch } = await batchCommands.executeWithOptions({ summary: `a batch for ${kind} on ${state.target}` }, [
    { commandPrefix, kind, nodes, payload, actor, reason, windowMs, waves, always },
  ]);
  if (batch !== null) state.tookBatch(batch);
}

/** Behind the commands, so that it finds them. The reconciler starts it where this run ends in between. */
async function watchBatch(batchId: string): Promise<void> {
  try {
    await startChild('approveBatch', {
      workflowId: workflowIds.approveBatch(batchId),
      taskQueue: taskQueues.control,
      args: [{ batchId }],
      parentClosePolicy: ParentClosePolicy.ABANDON,
      staticSummary: batchSummary,
    });
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    log.info('the batch is watched already', { batchId });
  }
}

async function awaitEach(state: RunCommandState, nodes: readonly string[]): Promise<CommandTally> {
  const ends = await Promise.all(
    nodes.map(async (nodeId) => {
      const commandId = state.commandIdOf(nodeId);
      const end = await awaitCommand.executeWithOptions({ activityId: commandId, summary: `${state.input.kind} on ${nodeId}` }, [
        { commandId },
      ]);
      state.finished += 1;
      return { nodeId, commandId, end };
    }),
  );
  return state.tally(ends);
}

async function awaitAll(state: RunCommandState): Promise<CommandTally> {
  const { commandPrefix } = state;
  const tally = await control.awaitCommands.executeWithOptions({ summary: `the ends of ${state.enqueued} command(s)` }, [
    { commandPrefix, nodes: state.input.nodes },
  ]);
  state.finished = tally.total;
  return tally;
}

async function cancel(state: RunCommandState): Promise<void> {
  enter(state, 'cancelling');
  const { batchId, commandPrefix, input } = state;
  await control.cancelCommands({ commandPrefix, nodes: input.nodes });
  if (batchId === null || !state.makesBatch) return;
  await control.cancelBatch({ batchId, actor: input.actor, reason: 'the run it belongs to was cancelled', as: 'cancelled' });
}

function enter(state: RunCommandState, phase: RunCommandState['phase']): void {
  state.phase = phase;
  showPhase({
    phase,
    ...(phase === 'running' ? { waitingOn: state.waitingOn, deadlineMs: state.deadline, behind: state.enqueued } : {}),
  });
  setCurrentDetails(state.describe());
}
