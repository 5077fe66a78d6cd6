/**
 * The workflows that wait or are in trouble, as Temporal knows them. A workflow is looked at as soon as it has run for longer
 * than a step takes: what fails and is tried again shows itself by its pending activity, whatever the workflow's own phase says.
 */
import type { Client, WorkflowExecutionDescription, WorkflowExecutionInfo } from '@temporalio/client';
import { defineSearchAttributeKey } from '@temporalio/common';
import { decodeOptionalFailureToOptionalError } from '@temporalio/common/lib/internal-non-workflow/index.js';
import { optionalTsToMs } from '@temporalio/common/lib/time.js';
import { second } from '../domain/time.ts';
import { type StuckItem, stuckWorkflow, untakenStep, type WorkflowFacts } from './stuck.ts';
import { type SaidStatus, stuckRun } from './stuck-runs.ts';

const phase = defineSearchAttributeKey('BcPhase', 'KEYWORD');
const waitingOn = defineSearchAttributeKey('BcWaitingOn', 'KEYWORD_LIST');
const deadline = defineSearchAttributeKey('BcDeadline', 'DATETIME');
const behind = defineSearchAttributeKey('BcBehind', 'INT');
const problems = defineSearchAttributeKey('TemporalReportedProblems', 'KEYWORD_LIST');

/** The first of a list that long say enough. */
const listedAtMost = 200;
/** Longer than a step and a first retry take; a task that nobody has taken for that long has no worker. */
const patienceMs = 10 * second;

/** Running workflows that wait for someone, cannot run, or whose steps fail or find no worker. */
export async function listStuckWorkflows(client: Client, now: number): Promise<StuckItem[]> {
  const since = new Date(now - patienceMs).toISOString();
  const query = `ExecutionStatus = 'Running' AND (WorkflowType = 'rotateCommandRoot' OR BcWaitingOn IS NOT NULL OR TemporalReportedProblems IS NOT NULL OR StartTime < '${since}')`;
  const items: StuckItem[] = [];
  for await (const info of client.workflow.list({ query, pageSize: listedAtMost })) {
    const item = stuckWorkflow(await factsOf(client, info, now));
    if (item !== null) items.push(withStatus(item, info, await statusOf(client, info)));
    if (items.length >= listedAtMost) break;
  }
  return items;
}

async function factsOf(client: Client, info: WorkflowExecutionInfo, now: number): Promise<WorkflowFacts> {
  const attributes = info.typedSearchAttributes;
  const described = await client.workflow.getHandle(info.workflowId, info.runId).describe();
  return {
    workflowId: info.workflowId,
    type: info.type,
    since: info.startTime.getTime(),
    phase: attributes.get(phase) ?? null,
    waitingOn: attributes.get(waitingOn) ?? [],
    deadline: attributes.get(deadline)?.getTime() ?? null,
    behind: attributes.get(behind) ?? null,
    problems: attributes.get(problems) ?? [],
    retrying: [...untaken(described, now), ...(await failingSteps(client, described))],
  };
}

/** A query needs a worker; a list that waits for one is no help. */
const queryWithinMs = 2_000;

/** Workflows that have phases answer `status` with the start of theirs; runs on machines say what they wait for as well. */
async function statusOf(client: Client, info: WorkflowExecutionInfo): Promise<SaidStatus | null> {
  try {
    const query = (): Promise<SaidStatus> => client.workflow.getHandle(info.workflowId, info.runId).query('status');
    return await client.connection.withDeadline(Date.now() + queryWithinMs, query);
  } catch {
    // The start of the workflow is what the server knows.
    return null;
  }
}

function withStatus(item: StuckItem, info: WorkflowExecutionInfo, said: SaidStatus | null): StuckItem {
  const since = typeof said?.['since'] === 'number' ? said['since'] : info.startTime.getTime();
  return stuckRun({ ...item, since }, said);
}

type Steps = WorkflowFacts['retrying'];

/** Activities that have failed at least once and try again. */
export function failingSteps(client: Client, { raw }: WorkflowExecutionDescription): Promise<Steps> {
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

/** Both states are called SCHEDULED, and both are 1. */
const scheduled = 1;

/** Tasks that wait in their queue for the first time: no worker polls it, or all are busy. */
function untaken({ raw, taskQueue }: WorkflowExecutionDescription, now: number): Steps {
  const waits = (task: Readonly<{ state?: number | null; scheduledTime?: Parameters<typeof optionalTsToMs>[0] }>): boolean => {
    const at = optionalTsToMs(task.scheduledTime);
    return task.state === scheduled && at !== undefined && at < now - patienceMs;
  };
  const code = raw.pendingWorkflowTask;
  const steps = (raw.pendingActivities ?? []).filter((activity) => (activity.attempt ?? 1) === 1 && waits(activity));
  return [
    ...(code !== null && code !== undefined && waits(code)
      ? [{ type: 'its code', attempt: code.attempt ?? 1, failure: `no worker of ${taskQueue} takes it` }]
      : []),
    ...steps.map(({ activityType }) => ({ type: activityType?.name ?? 'activity', attempt: 1, failure: untakenStep })),
  ];
}
