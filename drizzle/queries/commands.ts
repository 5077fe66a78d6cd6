/**
 * The per-node command log (gateway.md, rules 1 to 3). One statement raises the node's counter and inserts, so the order of
 * positions is the order of commits per node, and a reader by cursor never passes one that appears later (B69). Several
 * commands for one node get consecutive positions; node rows are locked in the order of their ids.
 *
 * The statement checks what the signature was made for: the log takes commands of the generation in the body, signed under a root
 * that is published. What does not match is simply not inserted; the caller asks why.
 */
import type { CommandStateNumber } from '../../domain/commands/states.ts';
import { type Executor, instant } from '../client.ts';

export interface NewCommand {
  readonly id: string;
  readonly nodeId: string;
  /** Identity generation the body was signed for. */
  readonly generation: number;
  readonly kind: string;
  readonly lane: string;
  readonly body: Uint8Array;
  readonly bodySha256: Uint8Array;
  /** Empty while it is held: nothing is signed before its release; then signerRoot is '' and signerNotAfter -Infinity. */
  readonly signature: Uint8Array;
  readonly signerRoot: string;
  readonly signerNotAfter: number;
  readonly batchId: string | null;
  readonly requestedBy: string;
  /** -Infinity: now. In the future: the command stays out of the log until it is due. Infinity: until somebody releases it. */
  readonly notBefore: number;
  readonly deadline: number;
  readonly createdAt: number;
}

/**
 * A signature that waited for its place while its root was dropped (by force: a drop in order outlasts every key) is not stored:
 * the node would reject it. Before the first publication any root will do. The roots are read once a statement, not once a row.
 */
export const isPublished = (root: string): string =>
  `coalesce(${root} = any((select t.roots from trust_bundle_state t where t.id = 1 and t.version > 0)::text[]), true)`;

/** It waits for the approval of its batch: unsigned, out of every read that looks for work, until it is released. */
export const isHeld = (notBefore: string): string => `${notBefore}::timestamptz = 'infinity'`;

const one = {
  name: 'commands-append-one',
  text: `with raised as (update node_queue q set next_seq = q.next_seq + 1 where q.node_id = $1 and q.generation = $2
             and not exists (select from node_commands k where k.id = $3) and (${isHeld('$12')} or ${isPublished('$9')}) returning q.next_seq)
         insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, batch_id,
           requested_by, not_before, deadline, created_at)
         select $1, case when $12::timestamptz > $14 then -next_seq else next_seq end, $3, $4, $5, $6, $7, $8, $9, $10, $11, $15, $12, $13, $14
         from raised on conflict (id) do nothing returning id`,
};

const many = {
  name: 'commands-append-many',
  text: `with input as (
           select * from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[], $9::text[],
             $10::timestamptz[], $11::text[], $12::timestamptz[], $13::timestamptz[], $14::timestamptz[], $15::text[]) with ordinality
             as i(node_id, generation, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, batch_id, not_before, deadline,
               created_at, requested_by, place)),
         wanted as (select i.* from input i where i.id <> all (array(select k.id from node_commands k where k.id = any($3)))
           and (${isHeld('i.not_before')} or ${isPublished('i.signer_root')})),
         asked as (select node_id, generation, count(*) as commands from wanted group by node_id, generation),
         locked as (
           select q.node_id, q.generation from node_queue q join asked a on a.node_id = q.node_id and a.generation = q.generation
           order by q.node_id for no key update of q),
         raised as (
           update node_queue q set next_seq = q.next_seq + a.commands from asked a join locked using (node_id, generation)
           where q.node_id = a.node_id and q.generation = a.generation returning q.node_id, q.generation, q.next_seq - a.commands as base)
         insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, batch_id,
           requested_by, not_before, deadline, created_at)
         select node_id, case when not_before > created_at then -1 else 1 end * (base + row_number() over (partition by node_id order by place)),
           id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, batch_id, requested_by, not_before, deadline, created_at
         from wanted join raised using (node_id, generation)
         on conflict (id) do nothing returning id`,
};

/** @returns the ids that were appended; the others exist already, or their node is not what they were signed for */
export async function appendCommands(db: Executor, commands: readonly NewCommand[]): Promise<Set<string>> {
  const [only] = commands;
  if (only === undefined) return new Set();
  const rows =
    commands.length === 1
      ? await db.query<{ id: string }>(one, appendOne(only))
      : await db.query<{ id: string }>(many, appendMany(commands));
  return new Set(rows.map((row) => row.id));
}

/** In words, because a Date cannot say it. */
const instantOf = (ms: number): string | Date => (Number.isFinite(ms) ? instant(ms) : ms > 0 ? 'infinity' : '-infinity');

const appendOne = (c: NewCommand): unknown[] => [
  c.nodeId,
  c.generation,
  c.id,
  c.kind,
  c.lane,
  c.body,
  c.bodySha256,
  c.signature,
  c.signerRoot,
  instantOf(c.signerNotAfter),
  c.batchId,
  instantOf(c.notBefore),
  instant(c.deadline),
  instant(c.createdAt),
  c.requestedBy,
];

const appendMany = (list: readonly NewCommand[]): unknown[] => [
  list.map((c) => c.nodeId),
  list.map((c) => c.generation),
  list.map((c) => c.id),
  list.map((c) => c.kind),
  list.map((c) => c.lane),
  list.map((c) => c.body),
  list.map((c) => c.bodySha256),
  list.map((c) => c.signature),
  list.map((c) => c.signerRoot),
  list.map((c) => instantOf(c.signerNotAfter)),
  list.map((c) => c.batchId),
  list.map((c) => instantOf(c.notBefore)),
  list.map((c) => instant(c.deadline)),
  list.map((c) => instant(c.createdAt)),
  list.map((c) => c.requestedBy),
];

export interface StoredCommand {
  readonly id: string;
  readonly nodeId: string;
  readonly seq: number;
  readonly kind: string;
  readonly lane: string;
  readonly body: Uint8Array;
  readonly bodySha256: Uint8Array;
  readonly signature: Uint8Array;
  readonly signerRoot: string;
  readonly signerNotAfter: number;
  readonly requestedBy: string;
  readonly notBefore: number;
  readonly deadline: number;
  readonly state: CommandStateNumber;
  readonly rejectReason: string | null;
  readonly batchId: string | null;
  readonly createdAt: number;
  readonly ackedAt: number | null;
  readonly finishedAt: number | null;
  /** null: no result was received. */
  readonly outcome: number | null;
  /** An encoded google.protobuf.Any. */
  readonly payload: Uint8Array | null;
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
  readonly startedAt: number | null;
}

const storedColumns = `c.id, c.node_id as "nodeId", c.seq, c.kind, c.lane, c.body, c.body_sha256 as "bodySha256", c.signature,
  c.signer_root as "signerRoot", c.signer_not_after as "signerNotAfter", c.requested_by as "requestedBy", c.not_before as "notBefore",
  c.deadline, c.state, c.reject_reason as "rejectReason", c.batch_id as "batchId", c.created_at as "createdAt", c.acked_at as "ackedAt", c.finished_at as "finishedAt",
  r.outcome, r.payload, r.error_code as "errorCode", r.error_message as "errorMessage", r.started_at as "startedAt"`;

const find = {
  name: 'commands-find',
  text: `select ${storedColumns} from node_commands c left join node_results r on r.command_id = c.id where c.id = any($1::text[])`,
};

/** Those that exist, with their results. */
export async function readCommands(db: Executor, ids: readonly string[]): Promise<Map<string, StoredCommand>> {
  const rows = await db.query<StoredCommand>(find, [ids]);
  return new Map(rows.map((row) => [row.id, row]));
}

const release = {
  name: 'commands-release',
  text: `with due as (select node_id, seq, id from node_commands where state = 0 and seq < 0 and not_before < 'infinity' and not_before <= $1
                      order by node_id, not_before, seq desc
                      limit $2 for no key update skip locked),
         locked as (select q.node_id from node_queue q where q.node_id in (select node_id from due) order by q.node_id for no key update),
         raised as (update node_queue q set next_seq = q.next_seq + d.commands
                    from (select node_id, count(*) as commands from due group by node_id) d join locked using (node_id)
                    where q.node_id = d.node_id returning q.node_id, q.next_seq - d.commands as base),
         placed as (select d.id, r.base + row_number() over (partition by d.node_id order by d.seq desc) as place from due d join raised r using (node_id))
         update node_commands c set seq = p.place from placed p where c.id = p.id returning c.node_id as "nodeId"`,
};

/** Gives commands that have become due their place in the log. @returns the nodes to poke */
export async function releaseDueCommands(db: Executor, input: { readonly now: number; readonly limit: number }): Promise<string[]> {
  const rows = await db.query<{ nodeId: string }>(release, [instant(input.now), input.limit]);
  return [...new Set(rows.map((row) => row.nodeId))];
}

export interface ResignCandidate {
  readonly id: string;
  readonly body: Uint8Array;
  /** An encoded Signature. */
  readonly signature: Uint8Array;
}

const candidates = {
  name: 'commands-resign-read',
  text: `select id, body, signature from node_commands where state < 2 and id > $1 and not_before < 'infinity'
           and (signer_root = $2 or signer_not_after < $3 or ($5 and not ${isPublished('signer_root')})) order by id limit $4`,
};

/** Unfinished commands signed under a root, by a signer that ends before an instant, or under an unpublished root; by id, for paging. */
export const readResignCandidates = (
  db: Executor,
  input: {
    readonly afterId: string;
    readonly underRoot: string | null;
    readonly expiringBefore: number | null;
    readonly underUnpublished: boolean;
    readonly limit: number;
  },
): Promise<ResignCandidate[]> =>
  db.query<ResignCandidate>(candidates, [
    input.afterId,
    input.underRoot,
    input.expiringBefore === null ? null : instant(input.expiringBefore),
    input.limit,
    input.underUnpublished,
  ]);

export interface NewSignature {
  readonly id: string;
  readonly signature: Uint8Array;
  readonly signerRoot: string;
  readonly signerNotAfter: number;
}

/** Rows are locked in the order of their ids, as the ends that nodes report lock them (dispatch.ts). */
const resign = {
  name: 'commands-resign',
  text: `with input as (select * from unnest($1::text[], $2::bytea[], $3::text[], $4::timestamptz[]) as i(id, signature, root, not_after)),
           target as (select c.id from node_commands c where c.id in (select id from input) order by c.id for no key update)
         update node_commands c set signature = i.signature, signer_root = i.root, signer_not_after = i.not_after
         from input i join target using (id) where c.id = i.id and c.state < 2 returning c.id`,
};

/** Replaces signatures and nothing else: the body is what was approved. @returns how many were still unfinished */
export async function replaceSignatures(db: Executor, list: readonly NewSignature[]): Promise<number> {
  if (list.length === 0) return 0;
  const rows = await db.query(resign, [
    list.map((s) => s.id),
    list.map((s) => s.signature),
    list.map((s) => s.signerRoot),
    list.map((s) => instant(s.signerNotAfter)),
  ]);
  return rows.length;
}
