/**
 * Delivery from a node's log and the way back: reads by cursor write nothing, acks and ends are written in batches.
 *
 * Every end of a command (result, reject, expiry, cancel) goes the same way in one transaction: first the state changes under
 * the row's lock, then a second statement, with a snapshot taken after the lock, queues the completion for the activity that
 * waits. registerWait takes the same lock, so an end is never missed between "no result yet" and "now I wait".
 *
 * Fencing: a batch first locks the log rows whose epoch is the session's, in the order of node ids (two writers that lock
 * many rows never wait for each other in a ring); what belongs to another epoch is returned as fenced and written nowhere.
 */
import { commandStates } from '../../domain/commands/states.ts';
import { type Database, type Executor, instant, instantOrNull } from '../client.ts';
import { completionChannel, runChannel } from './channels.ts';

export { type QueuedCommand, readOpenCommands, readOwnedCommands } from './open-commands.ts';

const cancelled = {
  name: 'dispatch-cancelled',
  text: `select id from node_commands where id = any($1::text[]) and state = ${commandStates.cancelled}`,
};

/** Which of these commands were cancelled. */
export async function cancelledAmong(db: Executor, ids: readonly string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  return (await db.query<{ id: string }>(cancelled, [ids])).map((row) => row.id);
}

/** What a session says about a command; its epoch fences it. */
interface FromSession {
  readonly nodeId: string;
  readonly epoch: number;
  readonly commandId: string;
}

export interface CommandAckRow extends FromSession {
  readonly seq: number;
}

export interface CommandRejectRow extends FromSession {
  /** Where the command stood in the node's log; 0 when it is not known. Names it where `commandId` is empty. */
  readonly seq: number;
  /** For machines, kebab-case: the reject reason of the protocol. */
  readonly reason: string;
  /** For people. */
  readonly detail: string;
}

export interface CommandResultRow extends FromSession {
  /** CommandOutcome of the protocol: 1 succeeded, 2 failed, 3 interrupted, 4 cancelled. */
  readonly outcome: number;
  /** An encoded google.protobuf.Any; null for none. */
  readonly payload: Uint8Array | null;
  readonly errorCode: string;
  readonly errorMessage: string;
  readonly startedAt: number | null;
  readonly finishedAt: number | null;
  /** SHA-256 over the body that ran. */
  readonly bodySha256: Uint8Array;
}

export interface Recorded {
  /** Ids that are stored now, by this call or an earlier one: acknowledge them to the daemon. */
  readonly stored: readonly string[];
  /** Ids of a session that is no longer the node's: close it. */
  readonly fenced: readonly string[];
  /** Ids that are no command of that node, or ran with another body. */
  readonly unknown: readonly string[];
}

/** Log rows of the sessions' epochs, locked in the order of node ids. */
const owned = `input as (select * from unnest($1::text[], $2::bigint[], $3::text[], __REST__),
  owned as (select q.node_id, q.epoch from node_queue q
            where (q.node_id, q.epoch) in (select node_id, epoch from input) order by q.node_id for no key update)`;

/** The commands that a batch speaks of, locked in the order of their ids: signing again locks them in the same order. */
const target = `target as (select c.id from node_commands c join input i on c.id = i.id and c.node_id = i.node_id
                           join owned o on o.node_id = i.node_id and o.epoch = i.epoch order by c.id for no key update of c)`;

const ack = {
  name: 'dispatch-ack',
  text: `with ${owned.replace('__REST__', '$4::bigint[]) as i(node_id, epoch, id, seq)')},
    ${target},
    acked as (update node_commands c set state = 1, acked_at = $5 from target t where c.id = t.id and c.state = 0 returning c.id),
    raised as (update node_queue q set acked_seq = greatest(q.acked_seq, top.seq)
               from (select node_id, max(seq) as seq from input join owned using (node_id, epoch) group by node_id) top
               where q.node_id = top.node_id and q.acked_seq < top.seq returning 1)
    select i.id, o.node_id is null as fenced from input i left join owned o using (node_id, epoch)`,
};

const columns = (rows: readonly FromSession[]): unknown[] => [
  rows.map((r) => r.nodeId),
  rows.map((r) => r.epoch),
  rows.map((r) => r.commandId),
];

/** The daemon has these durably. An ack of a finished or unknown command changes nothing. */
export async function recordAcks(
  db: Executor,
  acks: readonly CommandAckRow[],
  now: number,
): Promise<{ readonly fenced: readonly string[] }> {
  if (acks.length === 0) return { fenced: [] };
  const rows = await db.query<{ id: string; fenced: boolean }>(ack, [...columns(acks), acks.map((a) => a.seq), instant(now)]);
  return { fenced: rows.filter((row) => row.fenced).map((row) => row.id) };
}

interface Judged {
  readonly id: string;
  readonly fenced: boolean;
  readonly known: boolean;
  readonly moved: boolean;
}

/** The commands of `input`, locked; `moved` ended now. */
const judged = `select distinct on (i.id) i.id, o.node_id is null as fenced, c.id is not null as known, m.id is not null as moved
  from input i left join owned o using (node_id, epoch) left join target c on c.id = i.id left join moved m on m.id = i.id`;

const reject = {
  name: 'dispatch-reject',
  text: `with ${owned.replace('__REST__', '$4::text[]) as i(node_id, epoch, id, reason)')},
    ${target},
    moved as (update node_commands c set state = ${commandStates.rejected}, reject_reason = i.reason, finished_at = $5
              from input i join target using (id) where c.id = i.id and c.state < 2 returning c.id)
    ${judged}`,
};

const result = {
  name: 'dispatch-result',
  text: `with ${owned.replace(
    '__REST__',
    `$4::smallint[], $5::bytea[], $6::text[], $7::text[], $8::timestamptz[], $9::timestamptz[], $10::bytea[])
      as i(node_id, epoch, id, outcome, payload, error_code, error_message, started_at, finished_at, body_sha256)`,
  )},
    ${target.replace('c.node_id = i.node_id', 'c.node_id = i.node_id and c.body_sha256 = i.body_sha256')},
    moved as (update node_commands c set finished_at = $11, state = case i.outcome
                when 1 then ${commandStates.done} when 3 then ${commandStates.interrupted} when 4 then ${commandStates.cancelled} else ${commandStates.failed} end
              from (select distinct on (id) * from input order by id) i join target using (id)
              where c.id = i.id and c.state < 2 returning c.id),
    kept as (insert into node_results (command_id, node_id, outcome, payload, error_code, error_message, started_at, finished_at, epoch, received_at)
             select distinct on (i.id) i.id, i.node_id, i.outcome, i.payload, i.error_code, i.error_message, i.started_at, i.finished_at, i.epoch, $11
             from input i join target using (id) order by i.id
             on conflict (command_id) do nothing)
    ${judged}`,
};

interface Ends {
  readonly statement: typeof result;
  readonly values: unknown[];
  readonly now: number;
}

/** In a transaction: the second statement must see what committed before the first one had its locks. */
async function recordEnds(tx: Executor, { statement, values, now }: Ends): Promise<Recorded> {
  const rows = await tx.query<Judged>(statement, values);
  const moved = rows.filter((row) => row.moved).map((row) => row.id);
  await queueCompletions(tx, moved, now);
  return {
    stored: rows.filter((row) => !row.fenced && row.known).map((row) => row.id),
    fenced: rows.filter((row) => row.fenced).map((row) => row.id),
    unknown: rows.filter((row) => !row.fenced && !row.known).map((row) => row.id),
  };
}

const nothing: Recorded = Object.freeze({ stored: [], fenced: [], unknown: [] });

async function storeRejects(tx: Executor, rejects: readonly CommandRejectRow[], now: number): Promise<Recorded> {
  if (rejects.length === 0) return nothing;
  const reasons = rejects.map((r) => (r.detail === '' ? r.reason : `${r.reason}: ${r.detail}`));
  return recordEnds(tx, { statement: reject, values: [...columns(rejects), reasons, instant(now)], now });
}

async function storeResults(tx: Executor, results: readonly CommandResultRow[], now: number): Promise<Recorded> {
  if (results.length === 0) return nothing;
  const values = [
    ...columns(results),
    results.map((r) => r.outcome),
    results.map((r) => r.payload),
    results.map((r) => r.errorCode),
    results.map((r) => r.errorMessage),
    results.map((r) => instantOrNull(r.startedAt)),
    results.map((r) => instantOrNull(r.finishedAt)),
    results.map((r) => r.bodySha256),
    instant(now),
  ];
  return recordEnds(tx, { statement: result, values, now });
}

/** The daemon will not run these. The first end of a command wins. */
export const recordRejects = (db: Database, rejects: readonly CommandRejectRow[], now: number): Promise<Recorded> =>
  db.transaction((tx) => storeRejects(tx, rejects, now));

/**
 * Stores results, insert-only: the first one of a command wins and a later one changes nothing. A result that comes after
 * the command expired or was cancelled is kept as evidence; the state stays.
 */
export const recordResults = (db: Database, results: readonly CommandResultRow[], now: number): Promise<Recorded> =>
  db.transaction((tx) => storeResults(tx, results, now));

export interface SessionWrites {
  readonly acks: readonly CommandAckRow[];
  readonly rejects: readonly CommandRejectRow[];
  readonly results: readonly CommandResultRow[];
}

export interface RecordedWrites {
  readonly acks: { readonly fenced: readonly string[] };
  readonly rejects: Recorded;
  readonly results: Recorded;
}

const lockQueues = {
  name: 'dispatch-lock-queues',
  text: 'select 1 from node_queue where node_id = any($1::text[]) order by node_id for no key update',
};
const lockCommands = {
  name: 'dispatch-lock-commands',
  text: 'select 1 from node_commands where id = any($1::text[]) order by id for no key update',
};

const byPosition = {
  name: 'dispatch-by-position',
  text: `select c.node_id as "nodeId", c.seq, c.id from unnest($1::text[], $2::bigint[]) as u(node_id, seq)
         join node_commands c on c.node_id = u.node_id and c.seq = u.seq`,
};

/** A node that cannot read a command rejects its position: the row tells which command that was. */
async function namedByPosition(db: Executor, rejects: readonly CommandRejectRow[]): Promise<CommandRejectRow[]> {
  const nameless = rejects.filter((row) => row.commandId === '');
  if (nameless.length === 0) return [...rejects];
  const found = await db.query<{ nodeId: string; seq: number; id: string }>(byPosition, [
    nameless.map((row) => row.nodeId),
    nameless.map((row) => row.seq),
  ]);
  const ids = new Map(found.map(({ nodeId, seq, id }) => [`${seq} ${nodeId}`, id]));
  return rejects.map((row) => (row.commandId === '' ? { ...row, commandId: ids.get(`${row.seq} ${row.nodeId}`) ?? '' } : row));
}

/**
 * Everything that the sessions of a gateway said in one moment, in one transaction. Where they said things of more than one sort, its rows
 * are locked first, all logs and then all commands, each in the order of their ids: statements that lock one after another would
 * meet an enqueue over many nodes in a ring. One alone locks in that order by itself, and acks alone are one statement.
 */
export async function recordBatch(db: Database, { acks, rejects, results }: SessionWrites, now: number): Promise<RecordedWrites> {
  const sorts = [acks, rejects, results].filter(({ length }) => length > 0).length;
  if (sorts === 1 && acks.length > 0) return { acks: await recordAcks(db, acks, now), rejects: nothing, results: nothing };
  return db.transaction(async (tx) => {
    const named = await namedByPosition(tx, rejects);
    if (sorts > 1) await lockAll(tx, [...acks, ...named, ...results]);
    return {
      acks: await recordAcks(tx, acks, now),
      rejects: await storeRejects(tx, named, now),
      results: await storeResults(tx, results, now),
    };
  });
}

async function lockAll(tx: Executor, rows: readonly FromSession[]): Promise<void> {
  await tx.query(lockQueues, [[...new Set(rows.map((row) => row.nodeId))]]);
  await tx.query(lockCommands, [[...new Set(rows.map((row) => row.commandId))]]);
}

/**
 * The notification is part of it, once for all of them, and one for each run whose machine's own command failed: commits that notify come one after another in the whole database, and a gateway
 * has one of these under way at a time.
 */
const queueOutbox = {
  name: 'dispatch-outbox',
  text: `with queued as (insert into completion_outbox (command_id, workflow_id, run_id, activity_id, next_at, created_at)
           select w.command_id, w.workflow_id, w.run_id, w.activity_id, $2, $2 from command_waits w where w.command_id = any($1::text[])
           on conflict (command_id) do nothing returning 1)
         select pg_notify('${completionChannel}', '') where exists (select from queued)
         union all
         select pg_notify('${runChannel}', r.id) from node_commands c join metal_runs r on r.machine_id = c.node_id and r.state = 'open'
         where c.id = any($1::text[]) and c.state <> ${commandStates.done}`,
};

/**
 * Queues the completions of commands that ended in this transaction, and wakes the relays with its commit. A statement of its own: its
 * snapshot follows their locks.
 */
export async function queueCompletions(tx: Executor, commandIds: readonly string[], now: number): Promise<void> {
  if (commandIds.length > 0) await tx.query(queueOutbox, [commandIds, instant(now)]);
}
