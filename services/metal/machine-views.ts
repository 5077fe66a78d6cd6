/**
 * What operators look at of machines: where each stands, what is known of it, what runs on it. Reads only; nothing here decides
 * anything. Of the tenants that the caller acts for: what belongs to others is not there.
 */
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { valuesSharedBy } from './identities.ts';
import { unknownMachine } from './refusals.ts';
import { runsOf } from './run-views.ts';
import { type Reader, type Row, seen, tenantsOf, toProgress } from './view-rows.ts';
import type { MachineDetail, MachineView, SeenTenants } from './view-types.ts';

const machineSelect = `
  select m.*, n.tenant_id, b.address, b.system_id, b.pin_sha256, b.credential_ref,
         s.ended_at as session_ended, s.last_seen_at as session_seen,
         r.id as run_id, r.kind as run_kind, r.started_at as run_started, t.step, t.attempt, t.started_at as step_since
    from machines m join nodes n on n.id = m.id
    left join machine_bmcs b on b.machine_id = m.id
    left join lateral (select ended_at, last_seen_at from node_sessions where node_id = m.id
                        order by ended_at desc nulls first, epoch desc limit 1) s on true
    left join metal_runs r on r.machine_id = m.id and r.state = 'open'
    left join lateral (select step, attempt, started_at from metal_run_steps where run_id = r.id
                        order by started_at desc, attempt desc limit 1) t on true`;

export interface MachinePage {
  readonly tenants: SeenTenants;
  readonly after: string;
  readonly limit: number;
  readonly state?: MachineState | undefined;
  readonly siteId?: string | undefined;
  readonly now: number;
}

/** After `after` in order of id. Those that were deleted are not listed unless they are asked for. */
export async function listMachines(db: Reader, { tenants, after, limit, state, siteId, now }: MachinePage): Promise<MachineView[]> {
  const rows = await db.query<Row>(
    {
      name: 'machine-views-list',
      text: `${machineSelect} where ${seen} and m.id > $2 and m.state = coalesce($3, nullif(m.state, 'deleted'))
               and ($4::text is null or m.site_id = $4) order by m.id limit $5`,
    },
    [tenantsOf(tenants), after, state ?? null, siteId ?? null, limit],
  );
  return rows.map((row) => toMachine(row, now));
}

/** How many machines are in each state, by site. */
export async function countMachines(
  db: Reader,
  tenants: SeenTenants,
): Promise<readonly { readonly siteId: string; readonly state: MachineState; readonly machines: number }[]> {
  return db.query(
    {
      name: 'machine-views-count',
      text: `select m.site_id as "siteId", m.state, count(*) as machines from machines m join nodes n on n.id = m.id
             where ${seen} and m.state <> 'deleted' group by 1, 2 order by 1, 2`,
    },
    [tenantsOf(tenants)],
  );
}

const runsShown = 10;

export interface OneMachine {
  readonly tenants: SeenTenants;
  readonly now: number;
}

/** @throws NOT_FOUND (unknown-machine), also for another tenant's */
export async function getMachine(db: Reader, id: string, { tenants, now }: OneMachine): Promise<MachineDetail> {
  const [row] = await db.query<Row>({ text: `${machineSelect} where ${seen} and m.id = $2` }, [tenantsOf(tenants), id]);
  if (row === undefined) throw unknownMachine(id);
  return {
    ...toMachine(row, now),
    systemId: row.system_id ?? '',
    pinSha256: row.pin_sha256,
    credentialRef: row.credential_ref ?? '',
    identities: await db.query(
      {
        text: `select source, value, origin, last_seen_at as "lastSeenAt" from machine_identities where machine_id = $1 order by source, value`,
      },
      [id],
    ),
    shared: await sharedOf(db, id, tenants),
    disks: await db.query(
      {
        text: `select name, serial, wwn, model, size_bytes as "sizeBytes", transport, origin, seen_at as "seenAt"
               from machine_disks where machine_id = $1 order by name, serial, disk_key`,
      },
      [id],
    ),
    runs: await runsOf(db, id, runsShown),
    working: await workingOn(db, id),
  };
}

async function sharedOf(db: Reader, machineId: string, tenants: SeenTenants): Promise<MachineDetail['shared']> {
  const shared = await valuesSharedBy(db, machineId);
  const all = [...new Set(shared.flatMap(({ machineIds }) => machineIds))].filter((id) => id !== machineId);
  if (all.length === 0) return [];
  const rows = await db.query<{ id: string }>({ text: `select n.id from nodes n where ${seen} and n.id = any($2)` }, [
    tenantsOf(tenants),
    all,
  ]);
  const visible = new Set(rows.map(({ id }) => id));
  return shared.map(({ value, machineIds }) => {
    const others = machineIds.filter((id) => visible.has(id));
    return { value, others, hidden: machineIds.length - 1 - others.length };
  });
}

async function workingOn(db: Reader, machineId: string): Promise<MachineDetail['working']> {
  const rows = await db.query<Row>(
    {
      text: `select c.id, c.kind, p.done, p.total, p.note, p.at, p.first_done, p.first_at
             from node_commands c join command_progress p on p.command_id = c.id where c.node_id = $1 and c.state < 2 order by c.seq`,
    },
    [machineId],
  );
  return rows.map((row) => ({ commandId: row.id, kind: row.kind, progress: toProgress(row) }));
}

const toMachine = (row: Row, now: number): MachineView => ({
  id: row.id,
  tenantId: row.tenant_id,
  siteId: row.site_id,
  rack: row.rack,
  state: row.state,
  stateSince: row.state_since,
  stateReason: row.state_reason,
  manufacturer: row.manufacturer,
  model: row.model,
  memoryBytes: row.memory_bytes,
  processors: row.processors,
  profileName: row.profile_name,
  power: row.power,
  powerAt: row.power_at,
  inspectedAt: row.inspected_at,
  createdAt: row.created_at,
  createdBy: row.created_by,
  bmc: row.address ?? '',
  connected: row.session_seen !== null && row.session_ended === null && now - row.session_seen <= connectedWithinMs,
  lastSeenAt: row.session_seen,
  run:
    row.run_id === null
      ? null
      : {
          id: row.run_id,
          kind: row.run_kind,
          startedAt: row.run_started,
          step: row.step ?? '',
          attempt: row.attempt ?? 0,
          stepSince: row.step_since ?? row.run_started,
        },
});
