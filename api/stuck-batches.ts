/**
 * Open batches that no workflow watches, with how their last run ended. A list of what runs cannot show them, and what ended them is worth a
 * look: a release refuses a held command that was changed in the database, and whoever may write to the namespace may terminate any run.
 */
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import { second } from '../domain/time.ts';
import type { OpenBatch } from '../services/stuck.ts';
import { workflowIds } from '../temporal.config.ts';
import { type StuckItem, stuckBatch } from './stuck.ts';
import { rootFailure } from './temporal-errors.ts';

const running = ['RUNNING', 'PAUSED'];
const longestFailure = 500;
/** It is started behind the transaction that makes the batch. */
const startsWithinMs = 10 * second;

export async function listUnwatchedBatches(client: Client, batches: readonly OpenBatch[], now: number): Promise<StuckItem[]> {
  const items = await Promise.all(batches.map((batch) => look(client, batch, now)));
  return items.flatMap((item) => item ?? []);
}

/** null: it is watched, or will be in a moment. */
async function look(client: Client, { id, createdAt }: OpenBatch, now: number): Promise<StuckItem | null> {
  const handle = client.workflow.getHandle(workflowIds.approveBatch(id));
  try {
    const { status, closeTime, runId } = await handle.describe();
    if (running.includes(status.name)) return null;
    const failure = status.name === 'FAILED' ? await failureOf(client, { workflowId: handle.workflowId, runId }) : null;
    return stuckBatch({ id, since: closeTime?.getTime() ?? createdAt, ended: status.name, failure });
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error;
    if (createdAt > now - startsWithinMs) return null;
    return stuckBatch({ id, since: createdAt, ended: null, failure: null });
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
