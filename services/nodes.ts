/** Finding nodes: by id and by what an operator selects on, with the last session each had. */
import { and, asc, desc, eq, gt, inArray, type SQL, sql } from 'drizzle-orm';
import type { NodeRole } from '../domain/commands/kinds.ts';
import { ControlError } from '../domain/errors.ts';
import { isConnected } from '../domain/session/presence.ts';
import type { Executor } from '../drizzle/client.ts';
import type { NodeState } from '../drizzle/queries/nodes.ts';
import { nodeSessions, nodes } from '../drizzle/schema/index.ts';

export interface LastSession {
  readonly gatewayId: string;
  readonly epoch: number;
  readonly startedAt: number;
  readonly lastSeenAt: number;
  /** null: open. */
  readonly endedAt: number | null;
  readonly endReason: string | null;
  readonly trustVersion: number | null;
  readonly daemonVersion: string;
}

export interface NodeRecord {
  readonly id: string;
  readonly siteId: string;
  readonly role: NodeRole;
  readonly state: NodeState;
  readonly identityGeneration: number;
  readonly hostname: string;
  readonly createdAt: number;
  readonly connected: boolean;
  /** Its open session, else the one that ended last; null when it never had one. */
  readonly lastSession: LastSession | null;
}

export interface NodeSelector {
  readonly ids?: readonly string[];
  readonly state?: NodeState;
  readonly role?: NodeRole;
  readonly siteId?: string;
  /** For pages: the last id of the one before. */
  readonly afterId?: string;
  /** At most; default 1,000. */
  readonly limit?: number;
}

const conditions = ({ ids, state, role, siteId, afterId }: NodeSelector): SQL | undefined =>
  and(
    ids === undefined ? undefined : inArray(nodes.id, [...ids]),
    state === undefined ? undefined : eq(nodes.state, state),
    role === undefined ? undefined : eq(nodes.role, role),
    siteId === undefined ? undefined : eq(nodes.siteId, siteId),
    afterId === undefined ? undefined : gt(nodes.id, afterId),
  );

async function lastSessionsOf(db: Executor, ids: readonly string[]): Promise<Map<string, LastSession>> {
  if (ids.length === 0) return new Map();
  const rows = await db.run((orm) =>
    orm
      .selectDistinctOn([nodeSessions.nodeId])
      .from(nodeSessions)
      .where(inArray(nodeSessions.nodeId, [...ids]))
      // The open one first; ended_at of an open session is null, which descending order puts in front.
      .orderBy(asc(nodeSessions.nodeId), sql`${nodeSessions.endedAt} desc nulls first`, desc(nodeSessions.epoch)),
  );
  return new Map(rows.map((row) => [row.nodeId, toSession(row)]));
}

const toSession = (row: typeof nodeSessions.$inferSelect): LastSession => ({
  gatewayId: row.gatewayId,
  epoch: row.epoch,
  startedAt: row.startedAt.getTime(),
  lastSeenAt: row.lastSeenAt.getTime(),
  endedAt: row.endedAt?.getTime() ?? null,
  endReason: row.endReason,
  trustVersion: row.trustVersion,
  daemonVersion: row.daemonVersion,
});

/** Nodes in the order of their ids. */
export async function listNodes(db: Executor, selector: NodeSelector, now: number): Promise<NodeRecord[]> {
  if (selector.ids?.length === 0) return [];
  const rows = await db.run((orm) =>
    orm
      .select()
      .from(nodes)
      .where(conditions(selector))
      .orderBy(asc(nodes.id))
      .limit(selector.limit ?? 1_000),
  );
  const sessions = await lastSessionsOf(
    db,
    rows.map((row) => row.id),
  );
  return rows.map((row) => {
    const session = sessions.get(row.id) ?? null;
    return {
      id: row.id,
      siteId: row.siteId,
      role: row.role as NodeRole,
      state: row.state as NodeState,
      identityGeneration: row.identityGeneration,
      hostname: row.hostname,
      createdAt: row.createdAt.getTime(),
      connected: session !== null && isConnected(session, now),
      lastSession: session,
    };
  });
}

export async function findNode(db: Executor, id: string, now: number): Promise<NodeRecord | undefined> {
  return (await listNodes(db, { ids: [id] }, now))[0];
}

/** @throws NOT_FOUND */
export async function getNode(db: Executor, id: string, now: number): Promise<NodeRecord> {
  const node = await findNode(db, id, now);
  if (node !== undefined) return node;
  throw new ControlError('NOT_FOUND', `no node is called ${id}`, { details: { reason: 'unknown-node', nodeId: id } });
}
