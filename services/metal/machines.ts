/** Machines come and go: added by hand or by a file, deleted with a tombstone where their disks are not known to be clean, let go by a person. */
import { ControlError } from '../../domain/errors.ts';
import { matchKey } from '../../domain/metal/identity.ts';
import { isDeletedDirty, moveMachine } from '../../domain/metal/life-cycle.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { insertNodeRow } from '../../drizzle/queries/nodes.ts';
import { appendAudit } from '../audit.ts';
import { assertTenant, defaultTenant } from '../tenants.ts';
import { findTombstone, machinesSharing, readFacts, storeFacts } from './identities.ts';
import { factsOfMachine, problemsOfMachine } from './judge-machine.ts';
import { applyMove, closeEntriesOf, endIdentityOf, lockMachine } from './moves.ts';
import { assertSigned, machineState } from './refusals.ts';
import { findOpenRun } from './stored-run.ts';
import type { NewMachine } from './types.ts';

export const credentialRefOf = (machineId: string): string => `secret://bmc/${machineId}`;

const insertMachine = {
  name: 'machines-insert',
  text: `insert into machines (id, site_id, rack, state, state_since, created_at, created_by, updated_at)
         values ($1, $2, $3, 'registered', $4, $4, $5, $4)`,
};
const insertBmc = {
  name: 'machine-bmcs-insert',
  text: `insert into machine_bmcs (machine_id, site_id, address, system_id, credential_ref, pin_sha256, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing returning machine_id`,
};
const addressOwner = {
  name: 'machine-bmcs-owner',
  text: 'select machine_id as id from machine_bmcs where site_id = $1 and address = $2 and system_id = $3',
};
/** Waves of a batch go by labels; the rack is one. */
const labelRack = {
  name: 'nodes-label-rack',
  text: `update nodes set labels = labels || jsonb_build_object('rack', $2::text) where id = $1`,
};

/**
 * A machine with its node, its controller and what is known of it, in the caller's transaction.
 *
 * @throws INVALID_INPUT with every problem (`details.problems`); NOT_FOUND for an unknown tenant; CONFLICT (id-taken, bmc-taken,
 *   known-machine); INVALID_STATE (tombstone)
 */
export async function addMachineIn(
  tx: Executor,
  machine: NewMachine,
  { actor, now }: { readonly actor: string; readonly now: number },
): Promise<void> {
  const problems = problemsOfMachine(machine);
  if (problems.length > 0) {
    throw new ControlError('INVALID_INPUT', problems.map(({ field, message }) => `${field}: ${message}`).join('; '), {
      details: { reason: 'bad-machine', problems },
    });
  }
  const { id, siteId, rack = '', tenantId = defaultTenant, bmcAddress, bmcSystemId = '', credentialRef = credentialRefOf(id) } = machine;
  await assertTenant(tx, tenantId);
  await assertUnknown(tx, machine);
  if (!(await insertNodeRow(tx, { id, siteId, role: 'node', tenantId, now })))
    throw new ControlError('CONFLICT', `the id ${id} is taken by a node or a machine`, {
      details: { reason: 'id-taken', machineId: id, field: 'id' },
    });
  if (rack !== '') await tx.query(labelRack, [id, rack]);
  await tx.query(insertMachine, [id, siteId, rack, instant(now), actor]);
  const values = [id, siteId, bmcAddress, bmcSystemId, credentialRef, machine.bmcPinSha256 ?? null, instant(now)];
  if ((await tx.query(insertBmc, values)).length === 0) {
    const [owner] = await tx.query<{ id: string }>(addressOwner, [siteId, bmcAddress, bmcSystemId]);
    throw new ControlError('CONFLICT', `controller ${bmcAddress} of site ${siteId} is that of machine ${owner?.id ?? '(another)'}`, {
      details: { reason: 'bmc-taken', machineId: id, field: 'bmcAddress' },
    });
  }
  await storeFacts(tx, { machineId: id, facts: factsOfMachine(machine), origin: 'inventory', now });
  const details = { site: siteId, rack, bmc: bmcAddress };
  await appendAudit(tx, { key: `machine/${id}/added`, actor, action: 'machine.added', subject: id, tenant: tenantId, details }, now);
}

/** Nobody's machine twice, and none that was deleted dirty (M55, M59). */
async function assertUnknown(tx: Executor, machine: NewMachine): Promise<void> {
  const facts = factsOfMachine(machine);
  if (facts.length === 0) return;
  const buried = await findTombstone(tx, facts);
  if (buried !== undefined) {
    throw new ControlError(
      'INVALID_STATE',
      `${buried.source} ${buried.value} is that of machine ${buried.machineId}, which was deleted without a proven wipe (${buried.reason}): lift its tombstone first`,
      { details: { reason: 'tombstone', machineId: buried.machineId, source: buried.source, field: fieldOf(buried.source) } },
    );
  }
  const [known] = await machinesSharing(tx, facts);
  const [shared] = known?.facts ?? [];
  if (known === undefined || shared === undefined) return;
  throw new ControlError('CONFLICT', `${shared.source} ${shared.value} is that of machine ${known.machineId}`, {
    details: { reason: 'known-machine', machineId: known.machineId, source: shared.source, field: fieldOf(shared.source) },
  });
}

const fieldOf = (source: string): keyof NewMachine =>
  source.endsWith('mac') ? 'macAddresses' : source.endsWith('uuid') ? 'uuid' : 'serial';

/** Adds one machine. @throws as addMachineIn */
export async function addMachine(
  db: Database,
  machine: NewMachine,
  context: { readonly actor: string; readonly now: number },
): Promise<void> {
  await db.transaction((tx) => addMachineIn(tx, machine, context));
}

export interface SignedChange {
  readonly machineId: string;
  readonly actor: string;
  readonly reason: string;
  readonly now: number;
}

/**
 * A person has looked at a quarantined machine and says that it may be used again: by name and reason, in the trail.
 *
 * @throws INVALID_INPUT without a name or a reason; NOT_FOUND; INVALID_STATE for one that is not quarantined, or in a run
 */
export async function overrideMachine(db: Database, { machineId, actor, reason, now }: SignedChange): Promise<void> {
  assertSigned('an override', { actor, reason });
  await db.transaction(async (tx) => {
    const machine = await lockMachine(tx, machineId);
    await assertNoRun(tx, machineId);
    if (moveMachine('override', machine.state) === null)
      throw machineState(`machine ${machineId} is ${machine.state}: only a quarantined one is let go`, { machineId, state: machine.state });
    if (machine.node.state === 'quarantined') await endIdentityOf(tx, machine.node, { state: 'active', reason: 'quarantine lifted', now });
    await applyMove(tx, machine, { move: 'override', actor, reason, now });
  });
}

async function assertNoRun(tx: Executor, machineId: string): Promise<void> {
  const run = await findOpenRun(tx, machineId);
  if (run === undefined) return;
  throw new ControlError('INVALID_STATE', `machine ${machineId} is in ${run.kind} run ${run.id}: cancel it, or give it up`, {
    details: { reason: 'machine-busy', machineId, runId: run.id },
  });
}

const bury = {
  name: 'machine-tombstones-insert',
  text: `insert into machine_tombstones (machine_id, source, value, reason, created_at, created_by)
         select $1, source, value, $4, $5, $6 from unnest($2::text[], $3::text[]) as f(source, value) on conflict do nothing`,
};
const dropBmc = { name: 'machine-bmcs-delete', text: 'delete from machine_bmcs where machine_id = $1' };

/**
 * Deletes a machine for good; its id and what it did stay. One whose disks are not known to be clean leaves a tombstone: deletion is no
 * way around a wipe (M55).
 *
 * @returns whether it left one
 * @throws INVALID_INPUT; NOT_FOUND; INVALID_STATE while a run has it, or for one that is deleted
 */
export async function deleteMachine(
  db: Database,
  { machineId, actor, reason, now }: SignedChange,
): Promise<{ readonly tombstone: boolean }> {
  assertSigned('deleting a machine', { actor, reason });
  return db.transaction(async (tx) => {
    const machine = await lockMachine(tx, machineId);
    await assertNoRun(tx, machineId);
    if (moveMachine('delete', machine.state) === null)
      throw machineState(`machine ${machineId} is ${machine.state}: it cannot be deleted from there`, { machineId, state: machine.state });
    const facts = (await readFacts(tx, machineId)).filter((fact) => matchKey(fact) !== null);
    const dirty = isDeletedDirty(machine.state);
    if (dirty) {
      const why = `deleted-dirty: it was ${machine.state}; ${reason}`;
      const values = [machineId, facts.map(({ source }) => source), facts.map(({ value }) => value), why, instant(now), actor];
      await tx.query(bury, values);
    }
    await closeEntriesOf(tx, machineId, now);
    // Its address may be another machine's tomorrow.
    await tx.query(dropBmc, [machineId]);
    if (machine.node.state !== 'retired') await endIdentityOf(tx, machine.node, { state: 'retired', reason: 'machine deleted', now });
    await applyMove(tx, machine, { move: 'delete', actor, reason, details: { tombstone: dirty ? 'deleted-dirty' : null }, now });
    return { tombstone: dirty && facts.length > 0 };
  });
}

const lift = {
  name: 'machine-tombstones-lift',
  text: `update machine_tombstones set lifted_at = $2, lifted_by = $3, lift_reason = $4 where machine_id = $1 and lifted_at is null returning source`,
};

/** The hardware may come back: a person says that its disks are gone or clean. @throws INVALID_INPUT; NOT_FOUND when there is no tombstone */
export async function liftTombstone(db: Database, { machineId, actor, reason, now }: SignedChange): Promise<void> {
  assertSigned('lifting a tombstone', { actor, reason });
  await db.transaction(async (tx) => {
    const { tenantId, generation } = await lockMachine(tx, machineId);
    if ((await tx.query(lift, [machineId, instant(now), actor, reason])).length === 0)
      throw new ControlError('NOT_FOUND', `machine ${machineId} has no tombstone`, { details: { reason: 'no-tombstone', machineId } });
    const event = {
      key: `machine/${machineId}/tombstone-lifted/${generation}`,
      actor,
      action: 'machine.tombstone.lifted',
      subject: machineId,
    };
    await appendAudit(tx, { ...event, tenant: tenantId, details: { reason } }, now);
  });
}
