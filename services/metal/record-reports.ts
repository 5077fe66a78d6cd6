/**
 * What controllers and ramdisks report, kept as claims with their origin: normalised, bounded, never believed beyond what they are. Only the key
 * of a controller that was seen at first contact becomes more: it is the pin from then on, and a report never changes it.
 */
import { fromBinary, toJson } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { classOfSource, type IdentityFact, judgeMachine, matchMachine, normaliseFacts } from '../../domain/metal/identity.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { DiagDisksReportSchema, site } from '../../proto/index.ts';
import { appendAudit } from '../audit.ts';
import { machinesSharing, readFacts, storeFacts } from './identities.ts';
import { type LockedMachine, lockMachine } from './moves.ts';
import { getRun } from './stored-run.ts';
import type { PowerState } from './types.ts';

export interface ReportInput {
  readonly runId: string;
  /** An encoded BmcInventoryReport or DiagDisksReport. */
  readonly report: Uint8Array;
  readonly now: number;
}

export interface RecordedReport {
  /** For people. */
  readonly summary: string;
  /** Values that another machine has too: `class:value` (M59). */
  readonly duplicates: readonly string[];
}

/** Of one report; a controller with more is truncated by its reader before. */
const maxParts = 512;
const longestText = 256;
const cut = (text: string): string => text.slice(0, longestText);
/** What the database can hold of an unsigned number. */
const whole = (value: bigint): number => Number(value > BigInt(Number.MAX_SAFE_INTEGER) ? BigInt(Number.MAX_SAFE_INTEGER) : value);

const powers: Readonly<Record<number, PowerState>> = Object.freeze({
  [site.PowerState.ON]: 'on',
  [site.PowerState.OFF]: 'off',
  [site.PowerState.CHANGING]: 'changing',
});

const setPower = {
  name: 'machines-power',
  text: `update machines set power = $2, power_at = $3 where id = $1 and (power_at is null or power_at <= $3)`,
};
const setHardware = {
  name: 'machines-hardware',
  text: `update machines set manufacturer = $2, model = $3, memory_bytes = $4, processors = $5, inspected_at = $6, updated_at = $6 where id = $1`,
};
const setBmc = {
  name: 'machine-bmcs-report',
  text: `update machine_bmcs set profile = $2, pin_sha256 = coalesce(pin_sha256, $3), updated_at = $4 where machine_id = $1`,
};
const readPin = { name: 'machine-bmcs-pin', text: 'select pin_sha256 as pin from machine_bmcs where machine_id = $1 for no key update' };
const dropDisks = { name: 'machine-disks-drop', text: 'delete from machine_disks where machine_id = $1 and origin = $2' };
const insertDisks = {
  name: 'machine-disks-insert',
  text: `insert into machine_disks (machine_id, disk_key, name, serial, wwn, model, size_bytes, transport, rotational, origin, seen_at)
         select $1, * , $10, $11 from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::boolean[])
         on conflict (machine_id, disk_key) do update set name = excluded.name, serial = excluded.serial, wwn = excluded.wwn,
           model = excluded.model, size_bytes = excluded.size_bytes, transport = excluded.transport, rotational = excluded.rotational,
           origin = excluded.origin, seen_at = excluded.seen_at`,
};

function decode<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new ControlError('MALFORMED', `the report is no ${what}`, { details: { reason: 'bad-report' }, cause });
  }
}

/** Power as it was observed; an older observation changes nothing. @throws NOT_FOUND */
export async function recordPower(db: Executor, { runId, state, at }: { runId: string; state: PowerState; at: number }): Promise<void> {
  const { machineId } = await getRun(db, runId);
  await db.query(setPower, [machineId, state, instant(at)]);
}

/**
 * What a controller says of its machine.
 *
 * @throws NOT_FOUND; MALFORMED; CONFLICT (pin-differs) when the report is of another controller's key than the pinned one
 */
export async function recordInventory(db: Database, { runId, report, now }: ReportInput): Promise<RecordedReport> {
  const seen = decode('BmcInventoryReport', () => fromBinary(site.BmcInventoryReportSchema, report));
  const { machineId } = await getRun(db, runId);
  return db.transaction(async (tx) => {
    const machine = await lockMachine(tx, machineId);
    await takePin(tx, machine, { seen, runId, now });
    const facts = factsOfReport(seen);
    const duplicates = await duplicatesOf(tx, machineId, facts);
    await storeFacts(tx, { machineId, facts, origin: 'controller', now });
    await tx.query(setHardware, [
      machineId,
      cut(seen.manufacturer),
      cut(seen.model),
      whole(seen.memoryBytes),
      Math.min(seen.processors, 65_535),
      instant(now),
    ]);
    await tx.query(setPower, [machineId, powers[seen.power] ?? 'unknown', instant(now)]);
    await replaceDisks(tx, { machineId, origin: 'controller', now, disks: seen.disks.map(asControllerDisk) });
    const parts = [`${seen.disks.length} disks`, `${seen.interfaces.length} interfaces`, `${seen.requests} requests`];
    const flagged = duplicates.length === 0 ? '' : `; shared with another machine: ${duplicates.join(', ')}`;
    return {
      summary:
        `${cut(seen.manufacturer)} ${cut(seen.model)}, ${parts.join(', ')}${seen.truncated ? ', cut at our bounds' : ''}${flagged}`.trim(),
      duplicates,
    };
  });
}

type InventoryReport = site.BmcInventoryReport;

async function takePin(
  tx: Executor,
  machine: LockedMachine,
  { seen, runId, now }: { seen: InventoryReport; runId: string; now: number },
): Promise<void> {
  const [row] = await tx.query<{ pin: string | null }>(readPin, [machine.id]);
  const pin = row?.pin ?? null;
  const given = /^[0-9a-f]{64}$/.test(seen.pinSha256) ? seen.pinSha256 : null;
  if (pin !== null && given !== null && pin !== given) {
    throw new ControlError(
      'CONFLICT',
      `the controller of machine ${machine.id} has another key than the pinned one: ${given}, not ${pin}`,
      {
        details: { reason: 'pin-differs', machineId: machine.id, seen: given, pinned: pin },
      },
    );
  }
  const profile = seen.profile === undefined ? {} : toJson(site.BmcProfileSchema, seen.profile);
  await tx.query(setBmc, [machine.id, JSON.stringify(profile), given, instant(now)]);
  if (pin !== null || given === null) return;
  const event = {
    key: `machine/${machine.id}/pin/${given}`,
    actor: `run/${runId}`,
    action: 'machine.controller.pinned',
    subject: machine.id,
  };
  await appendAudit(tx, { ...event, tenant: machine.tenantId, details: { pin: given, run: runId } }, now);
}

function factsOfReport({ identity, serial, uuid, interfaces }: InventoryReport): IdentityFact[] {
  return normaliseFacts([
    ...identity.slice(0, maxParts),
    { source: 'redfish-system-serial', value: serial },
    { source: 'redfish-system-uuid', value: uuid },
    ...interfaces.slice(0, maxParts).map(({ macAddress }) => ({ source: 'redfish-interface-mac', value: macAddress })),
  ]);
}

async function duplicatesOf(tx: Executor, machineId: string, facts: readonly IdentityFact[]): Promise<string[]> {
  const known = await machinesSharing(tx, facts);
  const own = known.find((one) => one.machineId === machineId) ?? { machineId, facts };
  return [...matchMachine(facts, [...known.filter((one) => one.machineId !== machineId), { ...own, facts }]).duplicates];
}

interface DiskRow {
  readonly name: string;
  readonly serial: string;
  readonly wwn: string;
  readonly model: string;
  readonly sizeBytes: number;
  readonly transport: string;
  readonly rotational: boolean | null;
}

const asControllerDisk = ({ id, serial, identifier, model, capacityBytes, protocol, mediaType }: site.BmcDisk): DiskRow => ({
  name: cut(id),
  serial: cut(serial),
  wwn: cut(identifier),
  model: cut(model),
  sizeBytes: whole(capacityBytes),
  transport: cut(protocol).toLowerCase(),
  rotational: /^(hdd|ssd)$/i.test(mediaType) ? /^hdd$/i.test(mediaType) : null,
});

interface Disks {
  readonly machineId: string;
  readonly origin: 'controller' | 'ramdisk';
  readonly now: number;
  readonly disks: readonly DiskRow[];
}

/** Two disks with one serial stay two (M59). */
async function replaceDisks(tx: Executor, { machineId, origin, now, disks }: Disks): Promise<void> {
  await tx.query(dropDisks, [machineId, origin]);
  const used = new Set<string>();
  const rows = disks.slice(0, maxParts).map((disk, index) => {
    const best = `${origin}/${disk.wwn || disk.serial || disk.name || index}`;
    const key = used.has(best) ? `${best}#${index}` : best;
    used.add(key);
    return { ...disk, key };
  });
  if (rows.length === 0) return;
  const columns = (['key', 'name', 'serial', 'wwn', 'model', 'sizeBytes', 'transport', 'rotational'] as const).map((name) =>
    rows.map((row) => row[name]),
  );
  await tx.query(insertDisks, [machineId, ...columns, origin, instant(now)]);
}

/**
 * What a ramdisk reads of the machine that it runs on.
 *
 * @throws NOT_FOUND; MALFORMED; CONFLICT (wrong-machine) when it runs on another one: nothing is stored
 */
export async function recordDisks(db: Database, { runId, report, now }: ReportInput): Promise<RecordedReport> {
  const seen = decode('DiagDisksReport', () => fromBinary(DiagDisksReportSchema, report));
  const { machineId } = await getRun(db, runId);
  const facts = normaliseFacts([
    { source: 'dmi-serial', value: seen.systemSerial },
    { source: 'dmi-uuid', value: seen.systemUuid },
    ...seen.macAddresses.slice(0, maxParts).map((value) => ({ source: 'kernel-mac', value })),
  ]);
  return db.transaction(async (tx) => {
    await lockMachine(tx, machineId);
    const expected = await readFacts(tx, machineId);
    if (judgeMachine(expected, facts) === 'other') throw wrongMachine(machineId, facts);
    const duplicates = await duplicatesOf(tx, machineId, facts);
    await storeFacts(tx, { machineId, facts, origin: 'ramdisk', now });
    const disks = seen.disks.map(({ name, serial, wwn, model, sizeBytes, transport, rotational }) => ({
      name: cut(name),
      serial: cut(serial),
      wwn: cut(wwn),
      model: cut(model),
      transport: cut(transport),
      sizeBytes: whole(sizeBytes),
      rotational,
    }));
    await replaceDisks(tx, { machineId, origin: 'ramdisk', now, disks });
    return {
      summary: `${disks.length} disks: ${disks.map(({ model, serial, sizeBytes }) => `${model} ${serial || 'no serial'} ${sizeBytes} bytes`).join(', ')}`,
      duplicates,
    };
  });
}

function wrongMachine(machineId: string, facts: readonly IdentityFact[]): ControlError<'CONFLICT'> {
  const told = facts.filter(({ source }) => classOfSource(source) !== 'label').map(({ source, value }) => `${source} ${value}`);
  return new ControlError('CONFLICT', `the machine that answers for ${machineId} is another one: ${told.join(', ')}`, {
    details: { reason: 'wrong-machine', machineId },
  });
}
