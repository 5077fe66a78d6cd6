/** Batches: rows, leaves, approvals, members, and the move of held commands into their logs. What they mean: services/batches. */
import type { BatchState } from '../../domain/batch/states.ts';
import { byteaArray } from '../bytea-array.ts';
import { type Executor, instant } from '../client.ts';
import { isPublished } from './commands.ts';

export interface StoredBatch {
  readonly id: string;
  readonly tenantId: string;
  readonly state: BatchState;
  readonly root: Buffer;
  readonly size: number;
  readonly required: number;
  readonly notAfterMs: number;
  readonly trustDomain: string;
  readonly reason: string;
  readonly createdBy: string;
  readonly createdAt: number;
  readonly createdByAgent: string | null;
  readonly delegationId: string | null;
  readonly waves: unknown;
  readonly members: number;
  readonly approvedAt: number | null;
  readonly closedAt: number | null;
  readonly closedBy: string;
  readonly closeReason: string;
  readonly requestDigest: Buffer;
}

const columns = `id, tenant_id as "tenantId", state, scope_root as root, scope_size as size, required, not_after as "notAfterMs",
  trust_domain as "trustDomain", reason, created_by as "createdBy", created_at as "createdAt", created_by_agent as "createdByAgent",
  delegation_id as "delegationId", waves, members, approved_at as "approvedAt", closed_at as "closedAt", closed_by as "closedBy",
  close_reason as "closeReason", request_digest as "requestDigest"`;

const find = { name: 'batches-find', text: `select ${columns} from command_batches where id = any($1::text[]) order by id` };
const lock = { name: 'batches-lock', text: `${find.text} for no key update` };
const share = { name: 'batches-share', text: `${find.text} for share` };

export const findBatches = (db: Executor, ids: readonly string[]): Promise<StoredBatch[]> => db.query<StoredBatch>(find, [ids]);
/** To the end of the transaction nobody changes its state, adds to it or approves it. In the order of ids. */
export const lockBatches = (tx: Executor, ids: readonly string[]): Promise<StoredBatch[]> => tx.query<StoredBatch>(lock, [ids]);
/** To the end of the transaction its state stays; releases of several ranges do not wait for each other. */
export const shareBatch = async (tx: Executor, id: string): Promise<StoredBatch | undefined> =>
  (await tx.query<StoredBatch>(share, [[id]]))[0];

export interface NewBatch {
  readonly id: string;
  readonly tenantId: string;
  readonly state: BatchState;
  readonly root: Uint8Array;
  readonly size: number;
  readonly required: number;
  readonly notAfterMs: number;
  readonly trustDomain: string;
  readonly reason: string;
  readonly createdBy: string;
  readonly createdByAgent: string | null;
  readonly delegationId: string | null;
  readonly waves: unknown;
  readonly approval: Uint8Array | null;
  readonly idempotencyKey: string;
  readonly requestDigest: Uint8Array;
  readonly now: number;
}

const insertOne = {
  name: 'batches-insert',
  text: `insert into command_batches (id, tenant_id, state, scope_root, scope_size, required, not_after, trust_domain, reason, created_by,
           created_by_agent, delegation_id, waves, approval, idempotency_key, request_digest, created_at, approved_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, case when $3 = 'approved' then $17::timestamptz end)
         on conflict (id) do nothing returning id`,
};

/** false: a batch of that id exists. */
export async function insertBatch(tx: Executor, batch: NewBatch): Promise<boolean> {
  const { root, size, required, notAfterMs, trustDomain, reason, createdBy, createdByAgent, delegationId, waves, approval } = batch;
  const rows = await tx.query(insertOne, [
    batch.id,
    batch.tenantId,
    batch.state,
    root,
    size,
    required,
    instant(notAfterMs),
    trustDomain,
    reason,
    createdBy,
    createdByAgent,
    delegationId,
    waves === null || waves === undefined ? null : JSON.stringify(waves),
    approval,
    batch.idempotencyKey,
    batch.requestDigest,
    instant(batch.now),
  ]);
  return rows.length > 0;
}

export interface NewLeaf {
  readonly index: number;
  readonly hash: Uint8Array;
  readonly subject: string;
  readonly kind: string;
  readonly proof: Uint8Array;
  readonly payloadSha256: Uint8Array;
  readonly payloadTypeUrl: string | null;
  readonly payloadValue: Uint8Array | null;
}

const insertAll = {
  name: 'batches-scope-insert',
  text: `insert into command_batch_scope (batch_id, leaf_index, leaf_hash, subject, kind, proof, payload_sha256, payload_type_url, payload_value)
         select $1, * from unnest($2::int[], $3::bytea[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::text[], $9::bytea[])`,
};

export async function insertLeaves(tx: Executor, batchId: string, leaves: readonly NewLeaf[]): Promise<void> {
  await tx.query(insertAll, [
    batchId,
    leaves.map((leaf) => leaf.index),
    leaves.map((leaf) => leaf.hash),
    leaves.map((leaf) => leaf.subject),
    leaves.map((leaf) => leaf.kind),
    leaves.map((leaf) => leaf.proof),
    leaves.map((leaf) => leaf.payloadSha256),
    leaves.map((leaf) => leaf.payloadTypeUrl),
    leaves.map((leaf) => leaf.payloadValue),
  ]);
}

const findLeaves = {
  name: 'batches-leaves-by-hash',
  text: `select encode(leaf_hash, 'hex') as hash, leaf_index as index from command_batch_scope where batch_id = $1 and leaf_hash = any($2::bytea[])`,
};

/** Leaf hash in hex → its index, of those that are in the scope. */
export async function indexesOfLeaves(tx: Executor, batchId: string, hashes: readonly Uint8Array[]): Promise<Map<string, number>> {
  const rows = await tx.query<{ hash: string; index: number }>(findLeaves, [batchId, hashes]);
  return new Map(rows.map(({ hash, index }) => [hash, index]));
}

export interface StoredApproval {
  readonly kid: string;
  readonly signature: Buffer;
  readonly at: number;
}

const approvals = {
  name: 'batches-approvals',
  text: 'select kid, signature, created_at as at from command_batch_approvals where batch_id = $1 order by kid',
};

export const readApprovals = (db: Executor, batchId: string): Promise<StoredApproval[]> => db.query<StoredApproval>(approvals, [batchId]);

const insertOneApproval = {
  name: 'batches-approval-insert',
  text: `insert into command_batch_approvals (batch_id, kid, signature, approved_by, created_at) values ($1, $2, $3, $4, $5)
         on conflict (batch_id, kid) do nothing returning kid`,
};

/** false: that key has approved it before. */
export async function insertApproval(
  tx: Executor,
  approval: { batchId: string; kid: string; signature: Uint8Array; approvedBy: string; now: number },
): Promise<boolean> {
  const { batchId, kid, signature, approvedBy, now } = approval;
  return (await tx.query(insertOneApproval, [batchId, kid, signature, approvedBy, instant(now)])).length > 0;
}

const approve = {
  name: 'batches-approve',
  text: `update command_batches set approval = $2, state = case when $3 then 'approved' else state end,
           approved_at = case when $3 and approved_at is null then $4 else approved_at end where id = $1`,
};

/** Under lockBatches: what goes out beside its commands, and whether it is approved now. */
export async function storeApproval(
  tx: Executor,
  input: { batchId: string; approval: Uint8Array; isApproved: boolean; now: number },
): Promise<void> {
  await tx.query(approve, [input.batchId, input.approval, input.isApproved, instant(input.now)]);
}

const end = {
  name: 'batches-end',
  text: `update command_batches set state = $2, closed_by = $3, close_reason = $4 where id = $1 and state in ('pending', 'approved') returning id`,
};

/** Under lockBatches. false: it had ended before. */
export async function endBatch(
  tx: Executor,
  input: { batchId: string; state: 'expired' | 'cancelled'; by: string; reason: string },
): Promise<boolean> {
  return (await tx.query(end, [input.batchId, input.state, input.by, input.reason])).length > 0;
}

export interface NewMember {
  readonly commandId: string;
  readonly leafIndex: number;
  readonly payloadSha256: Uint8Array;
}

const addMembers = {
  name: 'batches-members-insert',
  text: `with b as (select id, members from command_batches where id = $1),
           added as (insert into command_batch_members (batch_id, member_index, command_id, leaf_index, payload_sha256)
             select b.id, b.members + i.place - 1, i.command_id, i.leaf_index, i.payload_sha256
             from b, unnest($2::text[], $3::int[], $4::bytea[]) with ordinality as i(command_id, leaf_index, payload_sha256, place))
         update command_batches set members = members + cardinality($2::text[]), closed_at = null where id = $1`,
};

/** Under lockBatches, so that member indexes have no gap and no double. */
export async function insertMembers(tx: Executor, batchId: string, members: readonly NewMember[]): Promise<void> {
  if (members.length === 0) return;
  await tx.query(addMembers, [
    batchId,
    members.map((member) => member.commandId),
    members.map((member) => member.leafIndex),
    members.map((member) => member.payloadSha256),
  ]);
}

export interface HeldCommand {
  readonly id: string;
  readonly nodeId: string;
  readonly kind: string;
  readonly body: Buffer;
  /** Of the node now; null: it takes no commands. */
  readonly generation: number | null;
  /** An encoded BatchProof. */
  readonly proof: Buffer;
  /** Its leaf names a payload. */
  readonly isBound: boolean;
}

/**
 * Each row by its own key, whatever the planner believes of the tables: a batch of 50,000 is written in a minute, and before statistics
 * know of it, a join by its id reads all of it for each page.
 */
const held = {
  name: 'batches-held',
  text: `select c.id, c.node_id as "nodeId", c.kind, c.body, q.generation, s.proof, s.payload_sha256 <> '' as "isBound"
         from command_batch_members m
         cross join lateral (select * from node_commands n where n.id = m.command_id limit 1) c
         cross join lateral (select generation from node_queue n where n.node_id = c.node_id limit 1) q
         cross join lateral (select proof, payload_sha256 from command_batch_scope n
           where n.batch_id = m.batch_id and n.leaf_index = m.leaf_index limit 1) s
         where m.batch_id = $1 and m.member_index >= $2 and m.member_index < $3
           and c.batch_id = m.batch_id and c.state = 0 and c.not_before = 'infinity'
         order by m.member_index`,
};

/** Members from (inclusive) to (exclusive) that are still held. */
export const readHeld = (db: Executor, range: { batchId: string; from: number; to: number }): Promise<HeldCommand[]> =>
  db.query<HeldCommand>(held, [range.batchId, range.from, range.to]);

export interface ReleasedCommand {
  readonly id: string;
  readonly nodeId: string;
  readonly generation: number;
  readonly body: Uint8Array;
  readonly bodySha256: Uint8Array;
  readonly signature: Uint8Array;
}

/**
 * Held → the end of its node's log, signed: only rows that are still held, of a node that is what they were signed for, under a
 * root that is published. The logs are locked first, in the order of node ids, as an append locks them: whoever releases the same command
 * waits there, and what he sees of it then is asked of the row itself, where it is moved.
 */
const release = {
  name: 'batches-release',
  text: `with input as (select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[]) with ordinality
             as i(id, node_id, generation, body, body_sha256, signature, place)),
           locked as (select q.node_id, q.generation from node_queue q where q.node_id = any($2::text[]) and ${isPublished('$7')}
             order by q.node_id for no key update),
           target as (select i.id, i.node_id, i.place from input i join locked l on l.node_id = i.node_id and l.generation = i.generation
             cross join lateral (select batch_id, state, not_before from node_commands n where n.id = i.id limit 1) c
             where c.batch_id = $10 and c.state = 0 and c.not_before = 'infinity'),
           raised as (update node_queue q set next_seq = q.next_seq + t.commands
             from (select node_id, count(*) as commands from target group by node_id) t
             where q.node_id = t.node_id returning q.node_id, q.next_seq - t.commands as base),
           placed as (select t.id, r.base + row_number() over (partition by t.node_id order by t.place) as seq
             from target t join raised r on r.node_id = t.node_id)
         update node_commands c set seq = p.seq, body = i.body, body_sha256 = i.body_sha256, signature = i.signature, signer_root = $7,
           signer_not_after = $8, deadline = $9, not_before = '-infinity'
         from placed p join input i on i.id = p.id where c.id = p.id and c.state = 0 and c.not_before = 'infinity'
         returning c.id, c.node_id as "nodeId"`,
};

export interface Release {
  readonly batchId: string;
  readonly commands: readonly ReleasedCommand[];
  readonly signerRoot: string;
  readonly signerNotAfter: number;
  readonly deadline: number;
}

/** @returns the commands that moved */
export function releaseHeld(tx: Executor, input: Release): Promise<{ id: string; nodeId: string }[]> {
  const { commands } = input;
  return tx.query<{ id: string; nodeId: string }>(release, [
    commands.map((c) => c.id),
    commands.map((c) => c.nodeId),
    commands.map((c) => c.generation),
    byteaArray(commands.map((c) => c.body)),
    byteaArray(commands.map((c) => c.bodySha256)),
    byteaArray(commands.map((c) => c.signature)),
    input.signerRoot,
    instant(input.signerNotAfter),
    instant(input.deadline),
    input.batchId,
  ]);
}
