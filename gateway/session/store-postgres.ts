/** The session store over PostgreSQL: the statements of drizzle/queries, put together as the port promises. */
import { commandStates } from '../../domain/commands/states.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Database, Executor } from '../../drizzle/client.ts';
import { readOpenCommands, recordBatch } from '../../drizzle/queries/dispatch.ts';
import { findStoredSpec } from '../../drizzle/queries/nodes.ts';
import { readAllRevoked, readRevocationCounter, readRevocationsAfter } from '../../drizzle/queries/revocations.ts';
import { endSession, endSessionsOf, openSession, touchSessions } from '../../drizzle/queries/sessions.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import type { OpenCommands, ReadCursor, RecordedBatch, SessionBatch, SessionStore, StoredDesiredState } from './store.ts';

export function createPostgresStore(db: Database, now: () => number): SessionStore {
  return {
    endSessionsOf: async (gatewayId) => void (await endSessionsOf(db, { gatewayId, reason: 'gateway-restarted', now: now() })),
    // Presence of all gateways is judged by one clock, which is none of theirs.
    openSession: (session) => openSession(db, { ...session, now: null }),
    endSession: (sessionId, reason) => endSession(db, { sessionId, reason, now: now() }),
    touchSessions: (touches) => touchSessions(db, touches, now()),
    readOpenCommands: (cursors, limitPerNode) => readOwned(db, cursors, limitPerNode),
    cancelledAmong: (ids) => readCancelled(db, ids),
    record: (batch) => record(db, batch, now()),
    publishedTrust: () => publishedTrust(db),
    findDesiredState: (nodeId) => findDesiredState(db, nodeId),
    readAllRevoked: () => readAllRevoked(db, now()),
    readRevocationsAfter: (seq) => readRevocations(db, seq),
  };
}

const foreignEpochs = {
  name: 'gateway-foreign-epochs',
  text: `select u.node_id as "nodeId" from unnest($1::text[], $2::bigint[]) as u(node_id, epoch)
         left join node_queue q on q.node_id = u.node_id where q.epoch is distinct from u.epoch`,
};

/**
 * Commands first, ownership second: what a newer session may already have been given is dropped here, however long this
 * process slept between the two.
 */
async function readOwned(db: Database, cursors: readonly ReadCursor[], limitPerNode: number): Promise<OpenCommands> {
  const commands = await readOpenCommands(db, cursors, limitPerNode);
  const rows = await db.query<{ nodeId: string }>(foreignEpochs, [cursors.map((c) => c.nodeId), cursors.map((c) => c.epoch)]);
  if (rows.length === 0) return { commands, fenced: [] };
  const fenced = new Set(rows.map((row) => row.nodeId));
  return { commands: commands.filter((command) => !fenced.has(command.nodeId)), fenced: [...fenced] };
}

const cancelled = {
  name: 'gateway-cancelled',
  text: `select id from node_commands where id = any($1::text[]) and state = ${commandStates.cancelled}`,
};

async function readCancelled(db: Executor, ids: readonly string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  return (await db.query<{ id: string }>(cancelled, [ids])).map((row) => row.id);
}

/** One transaction for everything the sessions of this gateway said in one tick: one commit, and no ack without its result. */
async function record(db: Database, batch: SessionBatch, now: number): Promise<RecordedBatch> {
  const { acks, rejects, results } = await recordBatch(db, batch, now);
  return {
    settled: [...results.stored, ...results.unknown],
    fenced: [...acks.fenced, ...rejects.fenced, ...results.fenced],
    unknown: results.unknown,
  };
}

/** The number first: what commits in between is above it, and read. */
const readRevocations: (db: Executor, seq: number) => ReturnType<SessionStore['readRevocationsAfter']> = async (db, after) => {
  const seq = await readRevocationCounter(db);
  return { seq, revocations: await readRevocationsAfter(db, after) };
};

async function findDesiredState(db: Executor, nodeId: string): Promise<StoredDesiredState | null> {
  const spec = await findStoredSpec(db, nodeId);
  if (spec === undefined) throw new ControlError('NOT_FOUND', `node ${nodeId} is not known`, { details: { reason: 'unknown-node' } });
  if (spec.body === null || spec.signature === null) return null;
  return { generation: spec.generation, body: spec.body, signature: spec.signature };
}
