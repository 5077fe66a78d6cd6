/** What operators look at of sites: their agents and how many machines are in which state. Reads only. */
import { ControlError } from '../../domain/errors.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { instant } from '../../drizzle/client.ts';
import { countMachines, type OneMachine } from './machine-views.ts';
import type { Reader, Row } from './view-rows.ts';
import type { SiteView } from './view-types.ts';

/** In order of id. */
export async function listSites(db: Reader, { tenants, now }: OneMachine): Promise<SiteView[]> {
  const counts = await countMachines(db, tenants);
  const rows = await db.query<Row>(
    {
      name: 'machine-views-sites',
      text: `select i.id, i.created_at, coalesce(json_agg(json_build_object('id', n.id, 'seen', extract(epoch from s.last_seen_at) * 1000,
                  'open', s.ended_at is null and s.last_seen_at >= $1) order by n.id) filter (where n.id is not null), '[]') as agents
             from sites i left join nodes n on n.site_id = i.id and n.role = 'site' and n.state = 'active'
             left join lateral (select ended_at, last_seen_at from node_sessions where node_id = n.id
                                order by ended_at desc nulls first, epoch desc limit 1) s on true
             group by i.id order by i.id`,
    },
    [instant(now - connectedWithinMs)],
  );
  return rows.map((row) => ({
    id: row.id,
    createdAt: row.created_at,
    agents: row.agents.map((agent: Row) => ({
      nodeId: agent.id,
      connected: agent.open === true,
      lastSeenAt: agent.seen === null ? null : Math.round(agent.seen),
    })),
    machines: Object.fromEntries(counts.filter(({ siteId }) => siteId === row.id).map(({ state, machines }) => [state, machines])),
  }));
}

/** @throws NOT_FOUND (unknown-site) */
export async function getSite(db: Reader, id: string, options: OneMachine): Promise<SiteView> {
  const found = (await listSites(db, options)).find((site) => site.id === id);
  if (found !== undefined) return found;
  throw new ControlError('NOT_FOUND', `no site is called ${id}`, { details: { reason: 'unknown-site', siteId: id } });
}
