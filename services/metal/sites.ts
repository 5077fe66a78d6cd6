/** Sites: who speaks for the machines there, and what stands there. Reads only. */
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import type { SiteAgentView, SiteOverview } from './types.ts';

interface AgentRow {
  readonly nodeId: string;
  readonly siteId: string;
  readonly connected: boolean;
  readonly lastSeenAt: number | null;
}

const agents = {
  name: 'metal-site-agents',
  text: `select n.id as "nodeId", n.site_id as "siteId", p.last_seen_at as "lastSeenAt",
           coalesce(s.ended_at is null and s.id is not null and p.last_seen_at >= $2, false) as connected
         from nodes n left join node_presence p on p.node_id = n.id left join node_sessions s on s.id = p.session_id
         where n.role = 'site' and n.state = 'active' and n.site_id = any($1::text[]) and ($3::text is null or n.tenant_id = $3)
         order by 4 desc, n.id`,
};

const asAgent = ({ nodeId, connected, lastSeenAt }: AgentRow): SiteAgentView => ({ nodeId, connected, lastSeenAt });

/** Active agents of a site that serve machines of a tenant: those with a live session first, then by id. */
export async function agentsOfSite(
  db: Executor,
  siteId: string,
  { now, tenantId }: { readonly now: number; readonly tenantId: string },
): Promise<SiteAgentView[]> {
  return (await db.query<AgentRow>(agents, [[siteId], instant(now - connectedWithinMs), tenantId])).map(asAgent);
}

const states = {
  name: 'metal-site-states',
  text: `select m.site_id as "siteId", m.state, count(*) as machines from machines m join nodes n on n.id = m.id
         where m.state <> 'deleted' and ($1::text[] is null or m.site_id = any($1)) and ($2::text[] is null or n.tenant_id = any($2)) group by 1, 2`,
};
const racks = {
  name: 'metal-site-racks',
  text: `select m.site_id as "siteId", m.rack, count(*) as machines from machines m join nodes n on n.id = m.id
         where m.state <> 'deleted' and ($1::text[] is null or m.site_id = any($1)) and ($2::text[] is null or n.tenant_id = any($2))
         group by 1, 2 order by 1, 2`,
};
const openRuns = {
  name: 'metal-site-runs',
  text: `select m.site_id as "siteId", count(*) as runs from metal_runs r join machines m on m.id = r.machine_id join nodes n on n.id = m.id
         where r.state = 'open' and ($1::text[] is null or m.site_id = any($1)) and ($2::text[] is null or n.tenant_id = any($2)) group by 1`,
};
const siteIds = {
  name: 'metal-site-ids',
  text: `select s.id from sites s where ($1::text[] is null or s.id = any($1))
           and exists (select from nodes n where n.site_id = s.id and ($2::text[] is null or n.tenant_id = any($2))) order by s.id limit 10000`,
};

/** Every site (or those named) with its agents, and its machines by state and rack. @param tenants whose machines count; default all */
export async function siteOverview(
  db: Executor,
  { sites = null, tenants = 'all', now }: { sites?: readonly string[] | null; tenants?: readonly string[] | 'all'; now: number },
): Promise<SiteOverview[]> {
  const scope = [sites, tenants === 'all' ? null : tenants];
  const ids = (await db.query<{ id: string }>(siteIds, scope)).map(({ id }) => id);
  const agentRows = await db.query<AgentRow>(agents, [ids, instant(now - connectedWithinMs), null]);
  const stateRows = await db.query<{ siteId: string; state: MachineState; machines: number }>(states, scope);
  const rackRows = await db.query<{ siteId: string; rack: string; machines: number }>(racks, scope);
  const runRows = await db.query<{ siteId: string; runs: number }>(openRuns, scope);
  return ids.map((siteId) => ({
    siteId,
    agents: agentRows.filter((row) => row.siteId === siteId).map(asAgent),
    states: Object.fromEntries(stateRows.filter((row) => row.siteId === siteId).map(({ state, machines }) => [state, machines])),
    racks: rackRows.filter((row) => row.siteId === siteId).map(({ rack, machines }) => ({ rack, machines })),
    openRuns: runRows.find((row) => row.siteId === siteId)?.runs ?? 0,
  }));
}
