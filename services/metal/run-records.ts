/** What happens in a run, as it happens: its steps, the words of operators, its batch. */
import { maxReasonLength } from '../../domain/batch/limits.ts';
import { ControlError } from '../../domain/errors.ts';
import { type Database, type Executor, instant, instantOrNull } from '../../drizzle/client.ts';
import { appendAudit } from '../audit.ts';
import { createCommandBatch } from '../batches/create.ts';
import type { CreatedBatch } from '../batches/types.ts';
import { readPublishedQuorum } from '../published-quorum.ts';
import { assertSigned, unknownRun } from './refusals.ts';
import { getRun, leavesOfStored, lockRun, plannedSteps, type StoredRun } from './stored-run.ts';
import type { ScopeLeafInput, StepState } from './types.ts';

export interface StepInput {
  readonly runId: string;
  readonly step: string;
  /** Counts from 1. */
  readonly attempt: number;
  readonly state: StepState;
  /** For people; cut to 2,000 characters. */
  readonly detail: string;
  readonly at: number;
  /** Who brought it about: the workflow, or the person who overrode it. */
  readonly by: string;
}

const longestDetail = 2_000;

/** The first beginning and the last end stand; a beginning that comes late changes no end. */
const upsertSteps = {
  name: 'metal-steps',
  text: `with known as (select r.id, i.* from unnest($2::text[], $3::int[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[])
                          as i(step, attempt, state, detail, actor, started_at, ended_at) join metal_runs r on r.id = $1),
         kept as (insert into metal_run_steps as s (run_id, step, attempt, state, detail, actor, started_at, ended_at) select * from known
                  on conflict (run_id, step, attempt) do update set
                    state = case when excluded.state = 'started' then s.state else excluded.state end,
                    detail = case when excluded.state = 'started' and s.state <> 'started' then s.detail else excluded.detail end,
                    actor = case when excluded.state = 'started' then s.actor else excluded.actor end,
                    ended_at = coalesce(excluded.ended_at, s.ended_at))
         select id from known limit 1`,
};

/** Steps of one run, in their order. Repeated, it changes nothing. @throws NOT_FOUND */
export async function recordSteps(db: Executor, steps: readonly StepInput[]): Promise<void> {
  for (const together of statementsOf(steps)) {
    const [{ runId }] = together as [StepInput, ...StepInput[]];
    const values = [
      runId,
      together.map(({ step }) => step),
      together.map(({ attempt }) => attempt),
      together.map(({ state }) => state),
      together.map(({ detail }) => detail.slice(0, longestDetail)),
      together.map(({ by }) => by),
      together.map(({ at }) => instant(at)),
      together.map(({ state, at }) => instantOrNull(state === 'started' ? null : at)),
    ];
    if ((await db.query(upsertSteps, values)).length === 0) throw unknownRun(runId);
  }
}

/** A statement changes a row once, so what is said of an attempt again goes with the next one, and so does another run. */
function statementsOf(steps: readonly StepInput[]): StepInput[][] {
  const all: StepInput[][] = [];
  for (const row of steps) {
    const last = all.at(-1);
    const fits = last?.every(({ runId, step, attempt }) => runId === row.runId && !(step === row.step && attempt === row.attempt));
    if (last !== undefined && fits) last.push(row);
    else all.push([row]);
  }
  return all;
}

export interface RunMessage {
  readonly runId: string;
  readonly kind: 'override' | 'cancel' | 'give-up';
  /** Empty: of the whole run. */
  readonly step: string;
  readonly actor: string;
  readonly reason: string;
  readonly now: number;
}

/** An operator's word in the trail, before it counts. The same word again is one event. @throws NOT_FOUND; INVALID_INPUT without a name or a reason */
export async function recordRunMessage(db: Database, { runId, kind, step, actor, reason, now }: RunMessage): Promise<void> {
  assertSigned(kind, { actor, reason });
  const run = await getRun(db, runId);
  await db.transaction((tx) =>
    appendAudit(
      tx,
      {
        key: `run/${runId}/${kind}/${step}/${actor}/${now}`,
        actor,
        action: `machine.run.${kind}`,
        subject: run.machineId,
        tenant: run.plan.tenantId,
        details: { run: runId, step, reason },
      },
      now,
    ),
  );
}

/** Everything destructive that the run may send. @throws as metalBatchScope */
export async function leavesOfRun(db: Executor, runId: string): Promise<ScopeLeafInput[]> {
  return leavesOfStored(db, await getRun(db, runId));
}

export interface RunBatchContext {
  readonly now: number;
  readonly trustDomain: string;
}

const keepBatch = { name: 'metal-run-batch', text: 'update metal_runs set batch_id = $2 where id = $1' };

/** From the plan to the end of the longest step, within what a batch may have. */
const longestWindowMs = 720 * 3_600_000;

/**
 * The one batch of a run, with every destructive command it may send in it, before it sends the first (BAT-030). null when there is none.
 * Repeated, it is the same batch.
 *
 * @throws as createCommandBatch; INVALID_STATE for a run that has ended
 */
export async function createRunBatch(
  db: Database,
  runId: string,
  { now, trustDomain }: RunBatchContext,
): Promise<(CreatedBatch & { readonly notAfterMs: number }) | null> {
  return db.transaction(async (tx) => {
    const run = await lockRun(tx, runId);
    if (run.state !== 'open')
      throw new ControlError('INVALID_STATE', `run ${runId} has ended: ${run.state}`, { details: { reason: 'run-ended', runId } });
    const windowMs = Math.min(
      longestWindowMs,
      plannedSteps(run.kind, run.profile).reduce((sum, { deadlineMs }) => sum + deadlineMs, 0),
    );
    // Made once: the agents of the site may be others by the time somebody asks again.
    const scope = run.batchId === null ? await leavesOfStored(tx, run) : await leavesOfBatch(tx, run.batchId);
    if (scope.length === 0) return null;
    const request = {
      tenantId: run.plan.tenantId,
      scope,
      reason: reasonOf(run),
      createdBy: run.actor,
      idempotencyKey: `run/${runId}`,
      windowMs,
    };
    const batch = await createCommandBatch(tx, request, { now, trustDomain, quorum: await readPublishedQuorum(tx) });
    if (run.batchId === null) await tx.query(keepBatch, [runId, batch.batchId]);
    const [{ notAfterMs } = { notAfterMs: now + windowMs }] = await tx.query<{ notAfterMs: number }>(endOfBatch, [batch.batchId]);
    return { ...batch, notAfterMs };
  });
}

const endOfBatch = { name: 'metal-batch-end', text: 'select not_after as "notAfterMs" from command_batches where id = $1' };
const storedLeaves = {
  name: 'metal-batch-leaves',
  text: `select subject, kind, payload_type_url as "typeUrl", payload_value as value from command_batch_scope where batch_id = $1 order by leaf_index`,
};

async function leavesOfBatch(tx: Executor, batchId: string): Promise<ScopeLeafInput[]> {
  const rows = await tx.query<{ subject: string; kind: string; typeUrl: string | null; value: Uint8Array | null }>(storedLeaves, [batchId]);
  return rows.map(({ subject, kind, typeUrl, value }) => ({
    subject,
    kind,
    ...(typeUrl === null || value === null ? {} : { payload: { typeUrl, value: new Uint8Array(value) } }),
  }));
}

/** For the people who approve: what, on which machine, with what, and why. */
function reasonOf({ kind, machineId, plan, profile, reason }: StoredRun): string {
  const where = `site ${plan.siteId}${plan.rack === '' ? '' : `, rack ${plan.rack}`}`;
  const what = profile === null ? '' : ` with profile ${profile.name}`;
  const text = `${kind} machine ${machineId} (${where})${what}: ${reason}`;
  const letters = Array.from(text);
  return letters.length <= maxReasonLength ? text : `${letters.slice(0, maxReasonLength - 1).join('')}…`;
}
