/** What waits in the logs: commands older than some age that have not ended, with the node they wait for; and batches that are open. */
import { isConnected } from '../domain/session/presence.ts';
import { type Executor, instant } from '../drizzle/client.ts';

export interface WaitingCommand {
  readonly id: string;
  readonly nodeId: string;
  readonly kind: string;
  /** open: the node has not taken it; acked: it has, and has not said how it ended. */
  readonly state: 'open' | 'acked';
  readonly ageMs: number;
  readonly deadline: number;
  readonly overdue: boolean;
  readonly requestedBy: string;
  readonly nodeState: string;
  readonly session: 'connected' | 'silent' | 'none';
  /** When the node was seen last; null: never, or too long ago to be on record. */
  readonly lastSeenAt: number | null;
  readonly gatewayId: string | null;
}

interface Row {
  readonly id: string;
  readonly nodeId: string;
  readonly kind: string;
  readonly state: number;
  readonly createdAt: number;
  readonly deadline: number;
  readonly requestedBy: string;
  readonly nodeState: string;
  readonly openSession: boolean | null;
  readonly lastSeenAt: number | null;
  readonly gatewayId: string | null;
}

const waiting = {
  name: 'stuck-commands',
  text: `select c.id, c.node_id as "nodeId", c.kind, c.state, c.created_at as "createdAt", c.deadline, c.requested_by as "requestedBy",
           n.state as "nodeState", s.ended_at is null as "openSession", s.last_seen_at as "lastSeenAt", s.gateway_id as "gatewayId"
         from node_commands c join nodes n on n.id = c.node_id
         left join lateral (select ended_at, last_seen_at, gateway_id from node_sessions where node_id = c.node_id
                            order by ended_at desc nulls first, epoch desc limit 1) s on true
         where c.state < 2 and c.seq > 0 and c.created_at < $1 order by c.created_at, c.id limit $2`,
};

/** The oldest first. */
export async function listWaitingCommands(
  db: Executor,
  input: { readonly now: number; readonly olderThanMs: number; readonly limit: number },
): Promise<WaitingCommand[]> {
  const rows = await db.query<Row>(waiting, [instant(input.now - input.olderThanMs), input.limit]);
  return rows.map((row) => ({
    id: row.id,
    nodeId: row.nodeId,
    kind: row.kind,
    state: row.state === 0 ? 'open' : 'acked',
    ageMs: input.now - row.createdAt,
    deadline: row.deadline,
    overdue: row.deadline < input.now,
    requestedBy: row.requestedBy,
    nodeState: row.nodeState,
    session: sessionOf(row, input.now),
    lastSeenAt: row.lastSeenAt,
    gatewayId: row.openSession === true ? row.gatewayId : null,
  }));
}

function sessionOf({ openSession, lastSeenAt }: Row, now: number): WaitingCommand['session'] {
  if (openSession !== true || lastSeenAt === null) return 'none';
  return isConnected({ endedAt: null, lastSeenAt }, now) ? 'connected' : 'silent';
}

export interface OpenBatch {
  readonly id: string;
  readonly createdAt: number;
}

const open = {
  name: 'stuck-batches',
  text: `select id, created_at as "createdAt" from command_batches
         where closed_at is null and state in ('pending', 'approved') order by created_at desc, id limit $1`,
};

/** Batches that still need a workflow, the newest first: what is shown of many is what somebody has just done. */
export const listOpenBatches = (db: Executor, limit: number): Promise<OpenBatch[]> => db.query<OpenBatch>(open, [limit]);
