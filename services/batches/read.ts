/** What people and workflows look at: batches, their scopes in pages, and how far they have come. Reads only. */
import { maxBatchPayloads, maxPageLeaves } from '../../domain/batch/limits.ts';
import { batchStateAt } from '../../domain/batch/states.ts';
import { commandStateName } from '../../domain/commands/states.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { findBatches, type StoredBatch } from '../../drizzle/queries/batches.ts';
import { requiredApprovals } from '../../pki/quorum/index.ts';
import type { QuorumFields } from '../../pki/trust/index.ts';
import { hasApprovers, readPublishedQuorum } from '../published-quorum.ts';
import { unknownBatch } from './refusals.ts';
import type { BatchProgress, BatchView, LabelProgress, ScopePage } from './types.ts';

const approvals = {
  name: 'batches-approvals-of',
  text: `select batch_id as "batchId", kid, created_at as at from command_batch_approvals where batch_id = any($1::text[]) order by created_at, kid`,
};

interface ApprovalRow {
  readonly batchId: string;
  readonly kid: string;
  readonly at: number;
}

async function viewsOf(db: Executor, batches: readonly StoredBatch[], now: number): Promise<BatchView[]> {
  const rows = await db.query<ApprovalRow>(approvals, [batches.map(({ id }) => id)]);
  const views = batches.map(({ requestDigest: _digest, root, ...batch }) => ({
    ...batch,
    root: new Uint8Array(root),
    state: batchStateAt(batch, now),
    approvals: rows.filter(({ batchId }) => batchId === batch.id).map(({ kid, at }) => ({ kid, at })),
  }));
  if (!views.some(({ state }) => state === 'pending')) return views;
  const quorum = await readPublishedQuorum(db);
  return views.map((view) => (view.state === 'pending' ? asCounted(view, quorum) : view));
}

/** While it waits, what counts is what the published set takes (A-PKI-46): nobody is told that all are there while it waits on. */
function asCounted(view: BatchView, quorum: QuorumFields): BatchView {
  const known = new Set(quorum.approverKeys.map(({ kid }) => kid));
  return {
    ...view,
    approvals: view.approvals.filter(({ kid }) => known.has(kid)),
    required: hasApprovers(quorum) ? Math.max(view.required, requiredApprovals(quorum, view.size)) : view.required,
  };
}

/** @throws NOT_FOUND */
export async function readBatch(db: Executor, batchId: string, { now }: { now: number }): Promise<BatchView> {
  const [view] = await viewsOf(db, await findBatches(db, [batchId]), now);
  if (view === undefined) throw unknownBatch(batchId);
  return view;
}

export interface ListBatches {
  /** Whose; 'all' of the deployment. */
  readonly tenants: readonly string[] | 'all';
  readonly state?: BatchView['state'] | undefined;
  /** The id of the last one of the page before; '' for the first. */
  readonly after: string;
  readonly limit: number;
  readonly now: number;
}

/** The newest first. A state is the one that is read: a pending batch whose window is over is expired. */
const list = {
  name: 'batches-list',
  text: `select b.id from command_batches b
         where ($1::text[] is null or b.tenant_id = any($1))
           and ($2 = '' or (b.created_at, b.id) < (select a.created_at, a.id from command_batches a where a.id = $2))
           and ($3::text is null or $3 = case when b.state in ('pending', 'approved') and b.not_after < $4 then 'expired' else b.state end)
         order by b.created_at desc, b.id desc limit $5`,
};

export async function listBatches(db: Executor, { tenants, state, after, limit, now }: ListBatches): Promise<BatchView[]> {
  const ids = (await db.query<{ id: string }>(list, [tenants === 'all' ? null : tenants, after, state ?? null, instant(now), limit])).map(
    ({ id }) => id,
  );
  const found = new Map((await findBatches(db, ids)).map((batch) => [batch.id, batch]));
  return viewsOf(
    db,
    ids.flatMap((id) => found.get(id) ?? []),
    now,
  );
}

interface LeafRow {
  readonly index: number;
  readonly subject: string;
  readonly kind: string;
  readonly payloadSha256: Buffer;
  readonly typeUrl: string | null;
  readonly value: Buffer | null;
}

/** The sum is over the payloads before a leaf: a page ends before the one that would be too much, and never holds none. */
const scopePage = {
  name: 'batches-scope-page',
  text: `select index, subject, kind, "payloadSha256", "typeUrl", value from (
           select leaf_index as index, subject, kind, payload_sha256 as "payloadSha256", payload_type_url as "typeUrl", payload_value as value,
             sum(coalesce(octet_length(payload_value), 0)) over (order by leaf_index) as bytes, row_number() over (order by leaf_index) as place
           from (select * from command_batch_scope where batch_id = $1 and leaf_index > $2 order by leaf_index limit $3) leaves) counted
         where bytes <= $4 or place = 1 order by index`,
};

export interface ScopePageRequest {
  /** The last index that was read; -1 for the first page. */
  readonly afterIndex: number;
  /** Up to 5,000 (BATCLI-003); a page also ends at 8 MiB of payloads (A-PKI-32). */
  readonly limit?: number;
}

/** In the order of the tree. @throws NOT_FOUND */
export async function readScopePage(
  db: Executor,
  batchId: string,
  { afterIndex, limit = maxPageLeaves }: ScopePageRequest,
): Promise<ScopePage> {
  const [batch] = await findBatches(db, [batchId]);
  if (batch === undefined) throw unknownBatch(batchId);
  const rows = await db.query<LeafRow>(scopePage, [batchId, afterIndex, Math.min(Math.max(limit, 1), maxPageLeaves), maxBatchPayloads]);
  const leaves = rows.map(({ index, subject, kind, payloadSha256, typeUrl, value }) => ({
    index,
    subject,
    kind,
    payloadSha256: new Uint8Array(payloadSha256),
    payload: typeUrl === null || value === null ? null : { typeUrl, value: new Uint8Array(value) },
  }));
  const last = leaves.at(-1)?.index;
  return { leaves, next: last === undefined || last >= batch.size - 1 ? null : last };
}

interface ProgressRow {
  readonly label: string;
  readonly state: number;
  readonly isHeld: boolean;
  readonly isConnected: boolean;
  readonly commands: number;
  readonly lastEndedAt: number | null;
}

const progress = {
  name: 'batches-progress',
  text: `select case when $2::text is null then '' else coalesce(n.labels ->> $2, '') end as label, c.state, c.state = 0 and c.not_before = 'infinity' as "isHeld",
           p.node_id is not null as "isConnected", count(*) as commands, max(c.finished_at) as "lastEndedAt"
         from command_batch_members m join node_commands c on c.id = m.command_id
         left join nodes n on n.id = c.node_id and $2::text is not null
         left join node_presence p on p.node_id = c.node_id and p.last_seen_at >= $3
         where m.batch_id = $1 group by 1, 2, 3, 4`,
};

/** Counts over all members of a batch. */
export async function batchProgress(db: Executor, batchId: string, { now }: { now: number }): Promise<BatchProgress> {
  return tally(await progressRows(db, batchId, { now, label: null }));
}

/** As batchProgress, for each value of a node label; in the order of the values. */
export async function progressByLabel(
  db: Executor,
  batchId: string,
  { label, now }: { label: string; now: number },
): Promise<LabelProgress[]> {
  const rows = await progressRows(db, batchId, { now, label });
  const values = [...new Set(rows.map((row) => row.label))].sort();
  return values.map((value) => ({ label: value, ...tally(rows.filter((row) => row.label === value)) }));
}

const progressRows = (db: Executor, batchId: string, { label, now }: { label: string | null; now: number }): Promise<ProgressRow[]> =>
  db.query<ProgressRow>(progress, [batchId, label, instant(now - connectedWithinMs)]);

const failures = new Set(['failed', 'expired', 'rejected', 'interrupted']);

function tally(rows: readonly ProgressRow[]): BatchProgress {
  const states: Record<string, number> = {};
  const counts = { members: 0, held: 0, running: 0, failed: 0, unhealthy: 0 };
  let lastEndedAt: number | null = null;
  for (const row of rows) {
    const state = commandStateName(row.state) ?? 'open';
    states[state] = (states[state] ?? 0) + row.commands;
    counts.members += row.commands;
    if (row.isHeld) counts.held += row.commands;
    else if (row.state < 2) counts.running += row.commands;
    if (failures.has(state)) counts.failed += row.commands;
    if (!row.isHeld && !row.isConnected) counts.unhealthy += row.commands;
    if (row.lastEndedAt !== null) lastEndedAt = Math.max(lastEndedAt ?? 0, row.lastEndedAt);
  }
  return { ...counts, states, lastEndedAt, isDone: counts.held + counts.running === 0 };
}

const ahead = {
  name: 'batches-labels-ahead',
  text: `select coalesce(n.labels ->> $3, '') as value from command_batch_members m
         join node_commands c on c.id = m.command_id join nodes n on n.id = c.node_id
         where m.batch_id = $1 and m.member_index >= $2 order by m.member_index limit $4`,
};

/** Values of a label of the members from an index on, for the next wave. */
export const labelsAhead = async (
  db: Executor,
  batchId: string,
  { label, from, limit }: { label: string; from: number; limit: number },
): Promise<string[]> => (await db.query<{ value: string }>(ahead, [batchId, from, label, limit])).map(({ value }) => value);
