/** What doctor asks about machines: who cannot be reached, what is left half done. Reads only; judged in cli/doctor/judge-machines.ts. */
import type { Profile } from '../../domain/metal/profile.ts';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { type SharedValue, valuesSharedByAny } from './identities.ts';

export interface MachineHealth {
  /** Sites with machines and without a connected agent; `agents`: how many are registered. */
  readonly silentSites: readonly {
    readonly siteId: string;
    readonly machines: number;
    readonly agents: number;
    readonly openRuns: number;
  }[];
  /** Machines whose controller's next password is stored while no run changes it. */
  readonly halfRotated: readonly string[];
  readonly quarantined: readonly { readonly id: string; readonly reason: string; readonly since: number }[];
  /** Values that several machines have (M59). */
  readonly shared: readonly SharedValue[];
  /** Every open run with the step that it is at. */
  readonly openRuns: readonly OpenRunFact[];
}

export interface OpenRunFact {
  readonly id: string;
  readonly machineId: string;
  readonly kind: RunKind;
  readonly profile: Profile | null;
  readonly startedAt: number;
  /** null before the first. */
  readonly step: string | null;
  readonly stepSince: number | null;
}

/** Doctor names a few; more say no more. */
const most = 1_000;

const silent = {
  text: `select m.site_id as "siteId", count(*) as machines,
           (select count(*) from nodes n where n.site_id = m.site_id and n.role = 'site' and n.state = 'active') as agents,
           count(*) filter (where exists (select from metal_runs r where r.machine_id = m.id and r.state = 'open')) as "openRuns"
         from machines m where m.state not in ('deleted', 'retired')
         and not exists (select from nodes n join node_sessions s on s.node_id = n.id
                         where n.site_id = m.site_id and n.role = 'site' and n.state = 'active' and s.ended_at is null and s.last_seen_at >= $1)
         group by m.site_id order by 4 desc, m.site_id limit ${most}`,
};
const half = {
  text: `select b.machine_id as id from machine_bmcs b
         join lateral (select sealed from secrets where path = substr(b.credential_ref, ${'secret://'.length + 1}) || '/next' order by version desc limit 1) s on true
         where starts_with(b.credential_ref, 'secret://') and s.sealed is not null
         and not exists (select from metal_runs r where r.machine_id = b.machine_id and r.state = 'open' and r.kind = 'rotate-bmc')
         order by 1 limit ${most}`,
};
const quarantined = {
  text: `select id, state_reason as reason, state_since as since from machines where state = 'quarantined' order by state_since, id limit ${most}`,
};
const open = {
  text: `select r.id, r.machine_id as "machineId", r.kind, r.profile, r.started_at as "startedAt", t.step, t.started_at as "stepSince"
         from metal_runs r left join lateral (select step, started_at from metal_run_steps where run_id = r.id and state = 'started'
                                              order by started_at desc, attempt desc limit 1) t on true
         where r.state = 'open' order by r.started_at, r.id limit ${most}`,
};

export async function readMachineHealth(db: Executor, now: number): Promise<MachineHealth> {
  return {
    silentSites: await db.query(silent, [instant(now - connectedWithinMs)]),
    halfRotated: (await db.query<{ id: string }>(half)).map(({ id }) => id),
    quarantined: await db.query(quarantined),
    shared: await valuesSharedByAny(db),
    openRuns: await db.query<OpenRunFact>(open),
  };
}
