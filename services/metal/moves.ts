/**
 * The one way in which a machine's state changes: a move of the table, as one conditional UPDATE on state and generation, with its line in
 * the trail (H-20). Locks are taken in one order everywhere: the node, the machine, its run, the trail.
 */
import { isRestState, type MachineMove, type MachineState, moveMachine } from '../../domain/metal/life-cycle.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { changeIdentity, lockNode, type NodeFacts, type NodeState } from '../../drizzle/queries/nodes.ts';
import { appendAudit } from '../audit.ts';
import { cancelCommandsOf } from '../command-ends.ts';
import { revokeCertificates } from '../revocation.ts';
import { machineChanged, unknownMachine } from './refusals.ts';

export interface LockedMachine {
  readonly id: string;
  readonly siteId: string;
  readonly rack: string;
  readonly state: MachineState;
  readonly stateReason: string;
  readonly generation: number;
  readonly profileName: string;
  readonly tenantId: string;
  readonly node: NodeFacts;
}

const lockOne = {
  name: 'machines-lock',
  text: `select m.id, m.site_id as "siteId", m.rack, m.state, m.state_reason as "stateReason", m.generation, m.profile_name as "profileName",
           (select n.tenant_id from nodes n where n.id = m.id) as "tenantId"
         from machines m where m.id = $1 for no key update`,
};

/** Its node first, then the machine. undefined for one that is not there. */
export async function findLocked(tx: Executor, machineId: string): Promise<LockedMachine | undefined> {
  const node = await lockNode(tx, machineId);
  if (node === undefined) return undefined;
  const [row] = await tx.query<Omit<LockedMachine, 'node'>>(lockOne, [machineId]);
  return row === undefined ? undefined : { ...row, node };
}

/** @throws NOT_FOUND */
export async function lockMachine(tx: Executor, machineId: string): Promise<LockedMachine> {
  const machine = await findLocked(tx, machineId);
  if (machine === undefined) throw unknownMachine(machineId);
  return machine;
}

export interface MoveInput {
  readonly move: MachineMove;
  /** What the run found; for `untouched`. */
  readonly before?: MachineState;
  readonly actor: string;
  readonly reason: string;
  readonly details?: Readonly<Record<string, string | number | null>>;
  readonly now: number;
}

const update = {
  name: 'machines-move',
  text: `update machines set state = $4, state_since = $5, state_reason = $6, generation = generation + 1, updated_at = $5
         where id = $1 and state = $2 and generation = $3 returning generation`,
};

/**
 * @returns the state after it; null when the table has no such move from where the machine is, and nothing was changed
 * @throws CONFLICT (machine-changed) when the row is not what was read
 */
export async function applyMove(tx: Executor, machine: LockedMachine, input: MoveInput): Promise<MachineState | null> {
  const { move, before, actor, reason, details = {}, now } = input;
  const to = moveMachine(move, machine.state, before);
  if (to === null) return null;
  const values = [machine.id, machine.state, machine.generation, to, instant(now), isRestState(to) ? reason : ''];
  const [row] = await tx.query<{ generation: number }>(update, values);
  if (row === undefined) throw machineChanged(machine.id);
  const event = { key: `machine/${machine.id}/state/${row.generation}`, actor, action: `machine.${move}`, subject: machine.id };
  await appendAudit(tx, { ...event, tenant: machine.tenantId, details: { from: machine.state, to, reason, ...details } }, now);
  return to;
}

/**
 * Ends the identity that the node has: its certificates, its commands, its generation (REV-015). With `active` the next one may join.
 *
 * @throws CONFLICT (machine-changed)
 */
export async function endIdentityOf(
  tx: Executor,
  node: NodeFacts,
  { state, reason, now }: { readonly state: NodeState; readonly reason: string; readonly now: number },
): Promise<{ readonly generation: number; readonly serials: readonly string[] }> {
  // A ramdisk is what a machine is for one boot; what comes after it is a machine again.
  const role = node.role === 'ramdisk' ? 'node' : node.role;
  const generation = await changeIdentity(tx, { node, state, role, now });
  if (generation === undefined) throw machineChanged(node.id);
  await cancelCommandsOf(tx, { nodeId: node.id, reason, now });
  const serials = await revokeCertificates(tx, { nodeId: node.id, reason, now });
  return { generation, serials };
}

/** A ramdisk speaks for a machine while its run lasts. Where the system of the disk has joined, it has ended already, and nothing happens. */
export async function endRamdiskOf(
  tx: Executor,
  node: NodeFacts,
  { reason, now }: { readonly reason: string; readonly now: number },
): Promise<NodeFacts> {
  if (node.role !== 'ramdisk' || node.state !== 'active') return node;
  const { generation } = await endIdentityOf(tx, node, { state: 'active', reason, now });
  return { ...node, role: 'node', identityGeneration: generation };
}

const closeOpen = {
  name: 'boot-entries-close',
  text: 'update boot_entries set closed_at = $2 where node_id = $1 and closed_at is null returning id',
};

/** Nobody joins with any entry of this machine any more. */
export const closeEntriesOf = async (tx: Executor, machineId: string, now: number): Promise<number> =>
  (await tx.query(closeOpen, [machineId, instant(now)])).length;

export interface QuarantineInput {
  /** The machine's id. */
  readonly nodeId: string;
  /** Kebab-case first, then what people need: `second-join: …`. */
  readonly reason: string;
  /** Default: the control plane itself. */
  readonly actor?: string;
  readonly now: number;
}

/**
 * Takes a machine out of everything until a person has looked, or a wipe is proven: no identity, no boot entry, no new run but the wipe.
 * In the caller's transaction. Nothing happens to one that is quarantined, retired or deleted, or is no machine.
 */
export async function quarantineMachine(
  tx: Executor,
  { nodeId, reason, actor = 'control-plane', now }: QuarantineInput,
): Promise<{ readonly changed: boolean; readonly state: MachineState | null }> {
  const machine = await findLocked(tx, nodeId);
  if (machine === undefined) return { changed: false, state: null };
  const state = await quarantineLocked(tx, machine, { actor, reason, now });
  return { changed: state !== null, state: state ?? machine.state };
}

/** @returns null when it stays as it is */
export async function quarantineLocked(tx: Executor, machine: LockedMachine, input: Omit<MoveInput, 'move'>): Promise<MachineState | null> {
  if (moveMachine('quarantine', machine.state) === null) return null;
  await closeEntriesOf(tx, machine.id, input.now);
  if (machine.node.state !== 'retired' && machine.node.state !== 'quarantined')
    await endIdentityOf(tx, machine.node, { state: 'quarantined', reason: 'machine quarantined', now: input.now });
  return applyMove(tx, machine, { ...input, move: 'quarantine' });
}
