/** Reboots machines: a batch of one leaf each, held until it is approved, released in waves that wait for the machines to come back. */
import { workflowInfo } from '@temporalio/workflow';
import type { RunCommandResult } from '../run-command/messages.ts';
import { commandPrefixOf, RunCommandState } from '../run-command/state.ts';
import { runInBatch } from '../run-command/story.ts';
import { refusing } from '../shared/failures.ts';
import { versioned } from '../shared/versioning.ts';
import { parseRebootNodes, type RebootNodesInput } from './messages.ts';

export async function rebootNodes(input: RebootNodesInput): Promise<RunCommandResult> {
  const { workflowId, firstExecutionRunId } = workflowInfo();
  const { command, waves } = refusing(() => parseRebootNodes(input));
  const state = new RunCommandState(command, commandPrefixOf({ workflowId, runId: firstExecutionRunId }), Date.now());
  return runInBatch(state, { always: true, waves });
}
versioned('PINNED', rebootNodes);
