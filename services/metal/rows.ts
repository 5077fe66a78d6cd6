/** A machine as runs and reports need it; what operators look at is machine-views.ts. */
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import type { Executor } from '../../drizzle/client.ts';
import { unknownMachine } from './refusals.ts';
import { findOpenRun, runSummary } from './stored-run.ts';
import type { BmcView, MachineView, PowerState, RunSummary } from './types.ts';

export interface MachineRow extends Omit<MachineView, 'bmc' | 'run' | 'state' | 'power'> {
  readonly state: MachineState;
  readonly power: PowerState;
  readonly address: string | null;
  readonly systemId: string | null;
  readonly credentialRef: string | null;
  readonly pinSha256: string | null;
  readonly bmcProfile: BmcView['profile'] | null;
}

export const machineColumns = `m.id, m.site_id as "siteId", m.rack, n.tenant_id as "tenantId", m.state, m.state_since as "stateSince",
    m.state_reason as "stateReason", m.generation, m.manufacturer, m.model, m.memory_bytes as "memoryBytes", m.processors,
    m.profile_name as "profileName", m.power, m.power_at as "powerAt", m.inspected_at as "inspectedAt", m.created_at as "createdAt",
    m.created_by as "createdBy", b.address, b.system_id as "systemId", b.credential_ref as "credentialRef", b.pin_sha256 as "pinSha256",
    b.profile as "bmcProfile"`;
export const machineTables = 'machines m join nodes n on n.id = m.id left join machine_bmcs b on b.machine_id = m.id';

/** @param run the one that has it now */
export function machineViewOf(row: MachineRow, run: RunSummary | null): MachineView {
  const { address, systemId, credentialRef, pinSha256, bmcProfile, ...machine } = row;
  const bmc = {
    address: address ?? '',
    systemId: systemId ?? '',
    credentialRef: credentialRef ?? '',
    pinSha256,
    profile: bmcProfile ?? {},
  };
  return { ...machine, bmc, run };
}

const one = {
  name: 'machines-one',
  text: `select ${machineColumns} from ${machineTables} where m.id = $1`,
};

/** @throws NOT_FOUND */
export async function getMachine(db: Executor, machineId: string): Promise<MachineView> {
  const [row] = await db.query<MachineRow>(one, [machineId]);
  if (row === undefined) throw unknownMachine(machineId);
  const run = await findOpenRun(db, machineId);
  return machineViewOf(row, run === undefined ? null : runSummary(run));
}

const places = {
  name: 'machines-places',
  text: `select id as "machineId", rack, site_id as "siteId" from machines where id = any($1::text[]) and state <> 'deleted' order by id`,
};

/** Rack and site of each; one that is unknown is not in the answer. */
export const placesOf = (db: Executor, machineIds: readonly string[]): Promise<{ machineId: string; rack: string; siteId: string }[]> =>
  db.query(places, [machineIds]);
