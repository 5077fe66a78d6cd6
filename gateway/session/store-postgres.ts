/** The session store over PostgreSQL: the statements of drizzle/queries, put together as the port promises. */
import { ControlError } from '../../domain/errors.ts';
import type { Database, Executor } from '../../drizzle/client.ts';
import { cancelledAmong, readOwnedCommands, recordBatch } from '../../drizzle/queries/dispatch.ts';
import { findNewerSpecs, findStoredSpec } from '../../drizzle/queries/nodes.ts';
import { recordProgress } from '../../drizzle/queries/progress.ts';
import { readAllRevoked, readRevocationCounter, readRevocationsAfter } from '../../drizzle/queries/revocations.ts';
import { touchSessions } from '../../drizzle/queries/session-touch.ts';
import { endSession, endSessionsOf, openSession } from '../../drizzle/queries/sessions.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import type { RecordedBatch, SessionBatch, SessionStore, StoredDesiredState } from './store.ts';

export function createPostgresStore(db: Database, now: () => number): SessionStore {
  return {
    endSessionsOf: async (gatewayId) => void (await endSessionsOf(db, { gatewayId, reason: 'gateway-restarted', now: now() })),
    // Presence of all gateways is judged by one clock, which is none of theirs.
    openSession: (session) => openSession(db, { ...session, now: null }),
    endSession: (sessionId, reason) => endSession(db, { sessionId, reason, now: now() }),
    touchSessions: (touches) => touchSessions(db, touches, now()),
    readOpenCommands: (cursors, limitPerNode) => readOwnedCommands(db, cursors, limitPerNode),
    cancelledAmong: (ids) => cancelledAmong(db, ids),
    record: (batch) => record(db, batch, now()),
    recordProgress: (rows) => recordProgress(db, rows, now()),
    publishedTrust: () => publishedTrust(db),
    findDesiredState: (nodeId) => findDesiredState(db, nodeId),
    findNewerStates: async (held) => new Map((await findNewerSpecs(db, held)).map(({ nodeId, ...state }) => [nodeId, state])),
    readAllRevoked: () => readAllRevoked(db, now()),
    readRevocationsAfter: (seq) => readRevocations(db, seq),
  };
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
