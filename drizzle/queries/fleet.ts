/** The fleet as a gate sees it: the nodes with an open session, from the narrow table that sessions.ts writes. */
import type { FleetFacts } from '../../domain/rotation/gates.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { type Executor, instantOrNull } from '../client.ts';

/** `now` absent: the database's clock, by which presence is written; a caller's own would hide nodes or keep them too long. */
const connectedVersions = {
  name: 'sessions-versions',
  text: `select node_id as "nodeId", trust_version as "trustVersion" from node_presence
         where last_seen_at >= coalesce($1::timestamptz, now()) - interval '${connectedWithinMs} ms' and node_id <> all($2::text[]) order by node_id`,
};

/** Every connected node with the version it reported: the input of a gate, for the evidence (H-17). */
export const connectedNodeVersions = (
  db: Executor,
  input: { readonly now?: number; readonly excluded?: readonly string[] },
): Promise<{ nodeId: string; trustVersion: number | null }[]> =>
  db.query(connectedVersions, [instantOrNull(input.now), input.excluded ?? []]);

const since = `coalesce($2::timestamptz, now()) - interval '${connectedWithinMs} ms'`;
const fleet = {
  name: 'fleet-facts',
  text: `select count(*) filter (where last_seen_at >= ${since}) as connected,
           count(*) filter (where last_seen_at >= ${since} and coalesce(trust_version, 0) < $1) as behind,
           max(last_seen_at) as "lastPresenceWriteAt",
           (select count(*) from nodes where state = 'active') as "knownNodes",
           (select coalesce(jsonb_agg(jsonb_build_object('nodeId', b.node_id, 'trustVersion', b.trust_version,
                'daemonVersion', coalesce(s.daemon_version, '')) order by b.trust_version nulls first, b.node_id), '[]')
              from (select node_id, session_id, trust_version from node_presence
                    where (trust_version < $1 or trust_version is null) and last_seen_at >= ${since} and node_id <> all($3::text[])
                    order by trust_version nulls first, node_id limit 6) b left join node_sessions s on s.id = b.session_id) as sample
         from node_presence where node_id <> all($3::text[])`,
};

/**
 * What the fleet gate is judged by, in one statement over the nodes with an open session (ROT-020 to ROT-025). NULL and 0 count as behind. `excluded` nodes count neither as connected nor as behind.
 */
export async function fleetFacts(
  db: Executor,
  input: { readonly version: number; readonly now?: number; readonly excluded?: readonly string[] },
): Promise<FleetFacts> {
  const [row] = await db.query<Omit<FleetFacts, 'absentNodes'>>(fleet, [input.version, instantOrNull(input.now), input.excluded ?? []]);
  const facts = row as Omit<FleetFacts, 'absentNodes'>;
  const excluded = input.excluded?.length ?? 0;
  return { ...facts, absentNodes: Math.max(0, facts.knownNodes - excluded - facts.connected) };
}
