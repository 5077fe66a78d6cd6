/** One command on one or many nodes: the building block of every other process. story.ts tells it. */
import { workflowInfo } from '@temporalio/workflow';
import { refusing } from '../shared/failures.ts';
import { versioned } from '../shared/versioning.ts';
import { parseRunCommand, type RunCommandInput, type RunCommandResult } from './messages.ts';
import { commandPrefixOf, RunCommandState } from './state.ts';
import { runInBatch } from './story.ts';

export async function runCommand(input: RunCommandInput): Promise<RunCommandResult> {
  const { workflowId, firstExecutionRunId } = workflowInfo();
  const read = refusing(() => parseRunCommand(input));
  return runInBatch(new RunCommandState(read, commandPrefixOf({ workflowId, runId: firstExecutionRunId }), Date.now()));
}
versioned('PINNED', runCommand);
