/** The workflows an operator starts through the API, and those that wait or are in trouble. */
import type { Client, WorkflowExecutionInfo } from '@temporalio/client';
import { defineSearchAttributeKey } from '@temporalio/common';
import { decodeOptionalFailureToOptionalError } from '@temporalio/common/lib/internal-non-workflow/index.js';
import { minute } from '../domain/time.ts';
import { taskQueues, workflowIds } from '../temporal.config.ts';
import { type RevokeIdentityInput, staticSummary as revokeSummary } from '../workflows/revoke-identity/messages.ts';
import { type RunCommandInput, staticSummary as runSummary } from '../workflows/run-command/messages.ts';
import type { OperatorWorkflows, Started } from './ports.ts';
import { type StuckItem, stuckWorkflow, type WorkflowFacts } from './stuck.ts';
import { calling } from './temporal-errors.ts';

const phase = defineSearchAttributeKey('BcPhase', 'KEYWORD');
const waitingOn = defineSearchAttributeKey('BcWaitingOn', 'KEYWORD_LIST');
const deadline = defineSearchAttributeKey('BcDeadline', 'DATETIME');
const behind = defineSearchAttributeKey('BcBehind', 'INT');
const problems = defineSearchAttributeKey('TemporalReportedProblems', 'KEYWORD_LIST');

export function createOperatorWorkflows(client: () => Promise<Client>, now: () => number): OperatorWorkflows {
  const start = async (type: string, options: { workflowId: string; input: unknown; summary: string }): Promise<Started> => {
    const { workflowId, input, summary } = options;
    return calling(`workflow ${workflowId}`, async () => {
      const { workflow } = await client();
      const handle = await workflow.start(type, {
        workflowId,
        taskQueue: taskQueues.control,
        args: [input],
        workflowIdConflictPolicy: 'FAIL',
        staticSummary: summary,
      });
      return { workflowId, runId: handle.firstExecutionRunId };
    });
  };
  return {
    startRevoke: (input: RevokeIdentityInput) =>
      start('revokeIdentity', { workflowId: workflowIds.revokeIdentity(input.nodeId), input, summary: revokeSummary }),
    startCommands: ({ unique, kind, nodes, payload, actor, reason, deadlineMs }) => {
      const input: RunCommandInput = {
        kind: kind as RunCommandInput['kind'],
        nodes,
        payload,
        actor,
        ...(reason === undefined ? {} : { reason }),
        ...(deadlineMs === undefined ? {} : { deadlineMs }),
      };
      return start('runCommand', { workflowId: workflowIds.runCommand(unique), input, summary: runSummary });
    },
    listStuck: () => calling('the list of workflows', async () => listStuckWorkflows(await client(), now())),
  };
}

/** The first of a list that long say enough. */
const listedAtMost = 200;

/** Running workflows that wait for someone, cannot run, or have run for longer than a command takes. */
export async function listStuckWorkflows(client: Client, now: number): Promise<StuckItem[]> {
  const since = new Date(now - 10 * minute).toISOString();
  const query = `ExecutionStatus = 'Running' AND (WorkflowType = 'rotateCommandRoot' OR BcWaitingOn IS NOT NULL OR TemporalReportedProblems IS NOT NULL OR StartTime < '${since}')`;
  const items: StuckItem[] = [];
  for await (const info of client.workflow.list({ query, pageSize: listedAtMost })) {
    const item = stuckWorkflow(await factsOf(client, info));
    if (item !== null) items.push(item);
    if (items.length >= listedAtMost) break;
  }
  return items;
}

async function factsOf(client: Client, info: WorkflowExecutionInfo): Promise<WorkflowFacts> {
  const attributes = info.typedSearchAttributes;
  return {
    workflowId: info.workflowId,
    type: info.type,
    since: await sinceOf(client, info),
    phase: attributes.get(phase) ?? null,
    waitingOn: attributes.get(waitingOn) ?? [],
    deadline: attributes.get(deadline)?.getTime() ?? null,
    behind: attributes.get(behind) ?? null,
    problems: attributes.get(problems) ?? [],
    retrying: await retryingActivities(client, info),
  };
}

/** A query needs a worker; a list that waits for one is no help. */
const queryWithinMs = 2_000;

/** Workflows that have phases answer `status` with the start of theirs. */
async function sinceOf(client: Client, info: WorkflowExecutionInfo): Promise<number> {
  try {
    const query = (): Promise<{ since?: unknown }> => client.workflow.getHandle(info.workflowId, info.runId).query('status');
    const { since } = await client.connection.withDeadline(Date.now() + queryWithinMs, query);
    if (typeof since === 'number') return since;
  } catch {
    // Answered below: the start is what the server knows.
  }
  return info.startTime.getTime();
}

async function retryingActivities(client: Client, info: WorkflowExecutionInfo): Promise<WorkflowFacts['retrying']> {
  const { raw } = await client.workflow.getHandle(info.workflowId, info.runId).describe();
  const failed = (raw.pendingActivities ?? []).filter((activity) => activity.lastFailure !== null && activity.lastFailure !== undefined);
  return Promise.all(
    failed.map(async (activity) => {
      const failure = await decodeOptionalFailureToOptionalError(client.options.loadedDataConverter, activity.lastFailure);
      return {
        type: activity.activityType?.name ?? 'activity',
        attempt: activity.attempt ?? 0,
        failure: failure?.message ?? 'it failed',
      };
    }),
  );
}
