/**
 * What is open in the database and no workflow watches, with how its last run ended: batches, and enrolments over SSH. A list of what runs cannot
 * show them, and what ended them is worth a look: a release refuses a held command that was changed in the database, an api dies between a row and
 * the start of its workflow, and whoever may write to the namespace may terminate any run.
 */
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import { second } from '../domain/time.ts';
import type { Enrolment } from '../services/enrolments/index.ts';
import type { OpenBatch } from '../services/stuck.ts';
import { workflowIds } from '../temporal.config.ts';
import { type LastRun, type StuckItem, stuckBatch, stuckEnrolment } from './stuck.ts';
import { rootFailure } from './temporal-errors.ts';

const running = ['RUNNING', 'PAUSED'];
const longestFailure = 500;
/** It is started behind the transaction that makes its row. */
const startsWithinMs = 10 * second;

/** What a workflow has to watch. */
interface Watched {
  readonly workflowId: string;
  readonly createdAt: number;
}

export const listUnwatchedBatches = (client: Client, batches: readonly OpenBatch[], now: number): Promise<StuckItem[]> =>
  unwatched(batches, async (batch) => {
    const last = await findLastRun(client, { workflowId: workflowIds.approveBatch(batch.id), createdAt: batch.createdAt }, now);
    return last === null ? null : stuckBatch({ id: batch.id, ...last });
  });

export const listUnwatchedEnrolments = (client: Client, enrolments: readonly Enrolment[], now: number): Promise<StuckItem[]> =>
  unwatched(enrolments, async ({ id, nodeId, createdAt }) => {
    const workflowId = workflowIds.enrolment(nodeId);
    const last = await findLastRun(client, { workflowId, createdAt }, now);
    return last === null ? null : stuckEnrolment({ id, workflowId, ...last });
  });

async function unwatched<T>(rows: readonly T[], look: (row: T) => Promise<StuckItem | null>): Promise<StuckItem[]> {
  return (await Promise.all(rows.map(look))).flatMap((item) => item ?? []);
}

/** null: it is watched, or will be in a moment. A run that ended before the row was made is another row's. */
async function findLastRun(client: Client, { workflowId, createdAt }: Watched, now: number): Promise<LastRun | null> {
  const handle = client.workflow.getHandle(workflowId);
  const none = createdAt > now - startsWithinMs ? null : { since: createdAt, ended: null, failure: null };
  try {
    const { status, closeTime, runId } = await handle.describe();
    if (running.includes(status.name)) return null;
    const since = closeTime?.getTime() ?? createdAt;
    if (since < createdAt) return none;
    const failure = status.name === 'FAILED' ? await failureOf(client, { workflowId, runId }) : null;
    return { since, ended: status.name, failure };
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error;
    return none;
  }
}

/** Of a run that has ended, so that this waits for nothing. */
async function failureOf(client: Client, { workflowId, runId }: { workflowId: string; runId: string }): Promise<string | null> {
  try {
    await client.workflow.result(workflowId, runId, { followRuns: false });
    return null;
  } catch (error) {
    const cause = rootFailure(error instanceof Error ? error.cause : error);
    return cause instanceof Error ? cause.message.slice(0, longestFailure) : null;
  }
}
