/** The batch ports over PostgreSQL (services/batches) and Temporal. */
import { randomBytes } from 'node:crypto';
import { nextWave, type WavePlan, waveSize } from '../../domain/batch/waves.ts';
import { commandStateName, commandStates } from '../../domain/commands/states.ts';
import type { Database } from '../../drizzle/client.ts';
import { firstHeldMember, membersInStates } from '../../drizzle/queries/batch-waves.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import * as services from '../../services/batches/index.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import type { BatchControlPorts, BatchCounts, BatchesPort, BatchFacts, BatchReleasePort, WaveStep } from '../batch-ports.ts';

export interface BatchesOptions {
  readonly db: Database;
  /** Of this process's own configuration: what an approval is for, whatever a row says. */
  readonly trustDomain: () => string;
}

const failedStates = Object.values(commandStates).filter((state) => state > commandStates.done);
/** Batches that are over are looked at in portions; the next run of the schedule takes the rest. */
const openAtMost = 1_000;

/** Instants are the database's: a worker's wrong clock neither ends a batch nor keeps one. */
export function createBatches({ db, trustDomain }: BatchesOptions): BatchesPort {
  const now = (): Promise<number> => databaseNow(db);
  return {
    read: async (batchId) => factsOf(await services.readBatch(db, batchId, { now: await now() })),
    leaves: async (batchId, limit) =>
      (await services.readScopePage(db, batchId, { afterIndex: -1, limit })).leaves.map(({ index, subject, kind, payloadSha256 }) => ({
        index,
        subject: subject.slice(0, 256),
        kind,
        payloadSha256: Buffer.from(payloadSha256).toString('hex'),
      })),
    recordApproval: async ({ batchId, kid, sig }) => {
      const signature = { kid, sig: new Uint8Array(Buffer.from(sig, 'base64url')) };
      await services.recordApproval(db, { batchId, signature, submittedBy: 'temporal' }, { now: await now(), trustDomain: trustDomain() });
    },
    cancel: async ({ batchId, actor, reason, as }) => {
      const { state } = await services.readBatch(db, batchId, { now: await now() });
      // One that has ended stays as it ended.
      if (state !== 'pending' && state !== 'approved') return;
      await services.cancelBatch(db, { batchId, actor, reason, isRejection: as === 'rejected' }, { now: await now() });
    },
    counts: (batchId) => countsOf(db, batchId),
    failures: async (batchId, limit) =>
      (await membersInStates(db, { batchId, states: failedStates, limit })).map(({ state, ...member }) => ({
        ...member,
        state: commandStateName(state) ?? String(state),
      })),
    reconcile: async () => {
      const { expired, cancelledCommands } = await services.expireBatches(db, { now: await now() });
      return { expired: expired.length, commands: cancelledCommands };
    },
    close: async (batchId) => void (await services.closeBatch(db, batchId, { now: await now() })),
    unfinished: (limit) => someOpen(db, Math.min(limit, openAtMost)),
  };
}

/** From a random place on, around the end: whoever fills the list keeps nobody else's batch from being looked at. */
async function someOpen(db: Database, limit: number): Promise<string[]> {
  const behind = await services.openBatches(db, { after: `b-${randomBytes(4).toString('hex')}`, limit });
  if (behind.length === limit) return behind;
  return [...new Set([...behind, ...(await services.openBatches(db, { after: '', limit }))])].slice(0, limit);
}

type View = Awaited<ReturnType<typeof services.readBatch>>;

const factsOf = (batch: View): BatchFacts => ({
  batchId: batch.id,
  state: batch.state,
  endedBecause: batch.closeReason,
  reason: batch.reason,
  root: Buffer.from(batch.root).toString('hex'),
  size: batch.size,
  required: batch.required,
  approvals: batch.approvals,
  notAfter: batch.notAfterMs,
  createdBy: batch.createdBy,
  proposedBy: batch.createdByAgent === null ? '' : `${batch.createdByAgent} for ${batch.createdBy}`,
});

async function countsOf(db: Database, batchId: string): Promise<BatchCounts> {
  const { members, held, running, states } = await services.batchProgress(db, batchId, { now: await databaseNow(db) });
  return { total: members, held, open: running, states };
}

export interface BatchReleaseOptions extends BatchesOptions {
  readonly worker: WorkerKeyProvider;
  readonly poke: (nodeIds: readonly string[]) => void;
}

export function createBatchRelease({ db, trustDomain, worker, poke }: BatchReleaseOptions): BatchReleasePort {
  return {
    next: (batchId) => nextStep(db, batchId),
    release: async ({ batchId, from, to }) => {
      const now = await databaseNow(db);
      const { notAfterMs } = await services.readBatch(db, batchId, { now });
      const request = { batchId, from, to, deadlineMs: notAfterMs };
      return services.releaseRange(db, worker, { request, context: { now, trustDomain: trustDomain(), poke } });
    },
  };
}

/** By the plan that the request's digest covers, and by what the commands have become. */
async function nextStep(db: Database, batchId: string): Promise<WaveStep> {
  const now = await databaseNow(db);
  const batch = await services.readBatch(db, batchId, { now });
  if (batch.state !== 'approved') return { kind: 'not-approved' };
  const plan = (batch.waves ?? null) as WavePlan | null;
  const progress = await services.batchProgress(db, batchId, { now });
  const from = (await firstHeldMember(db, batchId)) ?? progress.members;
  // Approved before its commands were asked for: what ended here would be signed as evidence that nothing was done.
  if (progress.members === 0) return { kind: 'wait', untilMs: null, why: 'no command is in it yet' };
  // Without a plan nothing paces it, so what was cut short goes on at once.
  if (plan === null) return from < progress.members ? { kind: 'release', from, to: progress.members } : { kind: 'done' };
  const labelsAhead =
    plan.maxPerLabel === undefined
      ? undefined
      : await services.labelsAhead(db, batchId, { label: plan.maxPerLabel.label, from, limit: waveSize(plan, progress.members) + 1 });
  return nextWave(plan, {
    total: progress.members,
    released: from,
    running: progress.running,
    failed: progress.failed,
    unhealthy: progress.unhealthy,
    waveEndedAtMs: progress.lastEndedAt,
    nowMs: now,
    ...(labelsAhead === undefined ? {} : { labelsAhead }),
  });
}

/** Whether a run is under way, as the server knows it now: lists are behind. */
export const createBatchWatch = (
  client: {
    readonly workflow: { getHandle(workflowId: string): { describe(): Promise<{ status: { name: string } }> } };
  },
  idOf: (batchId: string) => string,
): BatchControlPorts['workflows'] => ({
  isRunning: async (batchId) => {
    try {
      const { status } = await client.workflow.getHandle(idOf(batchId)).describe();
      return status.name === 'RUNNING' || status.name === 'PAUSED';
    } catch (error) {
      if (error instanceof Error && error.name === 'WorkflowNotFoundError') return false;
      throw error;
    }
  },
});
