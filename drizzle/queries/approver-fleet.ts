/** Which approver set each connected machine enforces, as its session says it (LAG-001 to LAG-010). */
import type { ApproverFleetFacts } from '../../domain/rotation/approver-set-gate.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import type { Executor } from '../client.ts';

const connected = `from node_presence p join node_sessions s on s.id = p.session_id
         where p.last_seen_at >= now() - interval '${connectedWithinMs} ms' and p.node_id <> all($1::text[])`;
/** Without published keys, whoever still holds a set lags; with them, whoever holds another one, none, or the same at another epoch. */
const lags = `(s.approver_set_sha256 is distinct from $2::bytea or ($2::bytea is not null and s.approver_set_epoch is distinct from $3::bigint))`;

const facts = {
  name: 'approver-fleet-facts',
  text: `select count(*) as connected, count(*) filter (where ${lags}) as behind, max(p.last_seen_at) as "lastPresenceWriteAt",
           coalesce((select jsonb_agg(jsonb_build_object('nodeId', b.node_id, 'epoch', b.approver_set_epoch) order by b.node_id)
             from (select p.node_id, s.approver_set_epoch ${connected} and ${lags} order by p.node_id limit 6) b), '[]') as sample
         ${connected}`,
};

export interface ExpectedSet {
  readonly epoch: number;
  /** Lower-case hex; null: no set is published, so nobody may enforce one. */
  readonly sha256: string | null;
  readonly excluded: readonly string[];
}

const bytesOf = (sha256: string | null): Buffer | null => (sha256 === null ? null : Buffer.from(sha256, 'hex'));

export async function approverFleetFacts(db: Executor, { epoch, sha256, excluded }: ExpectedSet): Promise<ApproverFleetFacts> {
  const [row] = await db.query<ApproverFleetFacts>(facts, [excluded, bytesOf(sha256), epoch]);
  return row as ApproverFleetFacts;
}

const each = {
  name: 'approver-fleet-each',
  text: `select p.node_id as "nodeId", s.approver_set_epoch as epoch, encode(s.approver_set_sha256, 'hex') as sha256 ${connected} order by p.node_id`,
};

/** Every connected machine with what it enforces: the gate's input, for the evidence. */
export const approverSetsHeld = (db: Executor): Promise<{ nodeId: string; epoch: number | null; sha256: string | null }[]> =>
  db.query(each, [[]]);
