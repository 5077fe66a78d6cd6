/**
 * One command on one or many nodes: enqueue, then wait for the ends. The building block of every other process.
 *
 * The command's id is made of the workflow's id and run, so a repeated step never sends twice. Few nodes: one activity each, whose id
 * is the command's id, completed by the relay. Many nodes: one activity that asks the database and costs no history. Cancelling the
 * workflow cancels the commands that have not started.
 */
import {
  allHandlersFinished,
  CancellationScope,
  condition,
  isCancellation,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { CommandControlActivities } from '../../activities/commands-control.ts';
import type { CommandSigningActivities } from '../../activities/commands-signing.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { showPhase } from '../shared/attributes.ts';
import { refusing } from '../shared/failures.ts';
import { versioned } from '../shared/versioning.ts';
import { awaitedOneByOne, type CommandTally, parseRunCommand, type RunCommandInput, type RunCommandResult, status } from './messages.ts';
import { commandPrefixOf, RunCommandState } from './state.ts';

const control = proxyActivities<CommandControlActivities>(onControl);
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

export async function runCommand(input: RunCommandInput): Promise<RunCommandResult> {
  const { workflowId, firstExecutionRunId } = workflowInfo();
  const state = new RunCommandState(
    refusing(() => parseRunCommand(input)),
    commandPrefixOf({ workflowId, runId: firstExecutionRunId }),
    Date.now(),
  );
  setHandler(status, () => state.status(), { description: 'How many commands are enqueued and finished' });
  try {
    await enqueue(state);
    const tally =
      state.listed !== null && state.listed.length <= awaitedOneByOne ? await awaitEach(state, state.listed) : await awaitAll(state);
    enter(state, 'done');
    await condition(allHandlersFinished);
    return { ...tally, kind: state.input.kind, commandPrefix: state.commandPrefix };
  } catch (error) {
    if (isCancellation(error)) await CancellationScope.nonCancellable(() => cancel(state));
    throw error;
  }
}
versioned('PINNED', runCommand);

async function enqueue(state: RunCommandState): Promise<void> {
  enter(state, 'enqueueing');
  const { kind, nodes, payload, actor } = state.input;
  const { commandPrefix, deadline } = state;
  state.enqueued = (
    await enqueueCommands.executeWithOptions({ summary: `${kind} on ${state.target}` }, [
      { commandPrefix, kind, nodes, payload, deadline, requestedBy: actor },
    ])
  ).total;
  enter(state, 'running');
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
  await control.cancelCommands({ commandPrefix: state.commandPrefix, nodes: state.input.nodes });
}

function enter(state: RunCommandState, phase: RunCommandState['phase']): void {
  state.phase = phase;
  showPhase({
    phase,
    ...(phase === 'running' ? { waitingOn: state.listed ?? ['nodes'], deadlineMs: state.deadline, behind: state.enqueued } : {}),
  });
  setCurrentDetails(state.describe());
}
