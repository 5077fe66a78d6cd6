/**
 * The life of a machine: one table of states and moves (H-20). A run claims its machine by a move, and its end is another one; an
 * operator's override and a quarantine are moves like the others, so what is not in the table cannot happen, whoever asks.
 *
 * Nothing leads out of `deleted`, and `retired` leads to deletion alone: no quarantine, late answer or crashed run brings back a machine
 * that was given away.
 */
export const machineStates = Object.freeze([
  'registered',
  'inspecting',
  'available',
  'provisioning',
  'provisioned',
  'retiring',
  'retired',
  'quarantined',
  'deleted',
] as const);

export type MachineState = (typeof machineStates)[number];

export type MachineMove =
  /** A run begins. */
  | 'inspect'
  | 'provision'
  | 'retire'
  /** A run ends. */
  | 'inspected'
  | 'provisioned'
  | 'retired'
  /** A run ends without having destroyed anything: back to the state before it. */
  | 'untouched'
  /** A run ends after a proven wipe. */
  | 'clean'
  /** A run ends in the middle of something, or somebody cheated. */
  | 'quarantine'
  /** A person has looked, and says so by name and reason. */
  | 'override'
  | 'delete';

interface MoveRow {
  readonly from: readonly MachineState[];
  readonly to: MachineState | 'before';
}

/** A claim of these kinds leaves the state as it is: nothing about the machine's use changes. */
export const moves: Readonly<Record<MachineMove, MoveRow>> = Object.freeze({
  inspect: { from: ['registered', 'available'], to: 'inspecting' },
  provision: { from: ['available', 'provisioned'], to: 'provisioning' },
  retire: { from: ['available', 'provisioned', 'quarantined'], to: 'retiring' },
  inspected: { from: ['inspecting'], to: 'available' },
  provisioned: { from: ['provisioning'], to: 'provisioned' },
  retired: { from: ['retiring'], to: 'retired' },
  untouched: { from: ['inspecting', 'provisioning', 'retiring'], to: 'before' },
  clean: { from: ['provisioning', 'retiring'], to: 'available' },
  quarantine: { from: ['registered', 'inspecting', 'available', 'provisioning', 'provisioned', 'retiring'], to: 'quarantined' },
  override: { from: ['quarantined'], to: 'available' },
  delete: { from: ['registered', 'available', 'provisioned', 'quarantined', 'retired'], to: 'deleted' },
});

export const isMachineState = (value: unknown): value is MachineState => machineStates.includes(value as MachineState);

/**
 * Where a move leads, or null when it does not exist from this state.
 *
 * @param before the state that a run found; only `untouched` asks for it
 */
export function moveMachine(move: MachineMove, from: MachineState, before?: MachineState): MachineState | null {
  const row = moves[move];
  if (!row.from.includes(from)) return null;
  if (row.to !== 'before') return row.to;
  return before !== undefined && isRestState(before) ? before : null;
}

const busy: readonly MachineState[] = Object.freeze(['inspecting', 'provisioning', 'retiring']);

/** A run holds the machine in these, and in no other. */
export const isBusyState = (state: MachineState): boolean => busy.includes(state);

/** What a run can have found: never a state of another run. */
export const isRestState = (state: MachineState): boolean => !isBusyState(state);

/** Its disks hold, or may hold, what somebody wrote: whoever deletes it now leaves a tombstone (M55). */
export const isDeletedDirty = (state: MachineState): boolean => state === 'quarantined' || state === 'provisioned';

/** While it is in one of these, the boot server never lets it boot its disk (M6). */
export const isUnderMaintenance = (state: MachineState): boolean =>
  state === 'quarantined' || state === 'provisioning' || state === 'retiring';
