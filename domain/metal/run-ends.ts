/**
 * What a run leaves behind, decided from what happened and from nothing else: a machine is untouched when nothing destructive was
 * handed out, clean when a wipe is proven to have come after the last of it, and dirty otherwise. A failed wipe, one without evidence and
 * one that we do not know the end of are all dirty (M49): the word clean is never somebody's opinion.
 */
import type { MachineMove, MachineState } from './life-cycle.ts';

export type RunKind = 'provision' | 'retire' | 'inspect' | 'rotate-bmc';
export type RunEnd = 'done' | 'failed' | 'cancelled';
export type Remains = 'untouched' | 'clean' | 'dirty';

/** A destructive command of the run on the machine's disks, and what is known of it. */
export interface DestructiveFact {
  readonly kind: 'disk.wipe' | 'deploy.image' | 'boot.kexec' | 'driver.invoke';
  /** Its place among the commands of the run: later ones are larger. */
  readonly order: number;
  /** The machine cannot have begun it: it was taken back, or refused, before it was taken. */
  readonly neverBegan: boolean;
  /** For a wipe: its evidence is stored and says that every disk was erased. */
  readonly proven: boolean;
}

/** A kexec changes no disk; what it starts may, so it counts as a write, and so does a plugin that is not harmless, whatever it is for. */
export function remainsOf(facts: readonly DestructiveFact[]): Remains {
  const begun = facts.filter(({ neverBegan }) => !neverBegan);
  if (begun.length === 0) return 'untouched';
  const last = begun.reduce((latest, fact) => (fact.order > latest.order ? fact : latest));
  return last.kind === 'disk.wipe' && last.proven ? 'clean' : 'dirty';
}

const rank: Readonly<Record<Remains, number>> = Object.freeze({ untouched: 0, clean: 1, dirty: 2 });

/** The facts, or what somebody knows to be worse: a claim never improves them. */
export const worseRemains = (a: Remains, b: Remains): Remains => (rank[a] >= rank[b] ? a : b);

/** A claim of these kinds moves the machine; of the others it leaves it in its state. */
export const claimOf: Readonly<Record<RunKind, MachineMove | null>> = Object.freeze({
  provision: 'provision',
  retire: 'retire',
  inspect: 'inspect',
  'rotate-bmc': null,
});

/** Kinds that may also run in these states, without a move: they look, or change the controller alone. */
export const staysIn: Readonly<Record<RunKind, readonly MachineState[]>> = Object.freeze({
  provision: [],
  retire: [],
  inspect: ['provisioned', 'quarantined'],
  'rotate-bmc': ['registered', 'available', 'provisioned', 'quarantined'],
});

const doneMove: Readonly<Record<RunKind, MachineMove | null>> = Object.freeze({
  provision: 'provisioned',
  retire: 'retired',
  inspect: 'inspected',
  'rotate-bmc': null,
});
const remainsMove: Readonly<Record<Remains, MachineMove>> = Object.freeze({ untouched: 'untouched', clean: 'clean', dirty: 'quarantine' });

export interface EndedRun {
  readonly kind: RunKind;
  readonly end: RunEnd;
  /** null for a run that is done. */
  readonly remains: Remains | null;
  /** The run found the machine in a state that it left alone. */
  readonly moved: boolean;
}

/** The move that ends a run, or null when the state stays. A dirty end moves even a machine that was left in its state. */
export function endMove({ kind, end, remains, moved }: EndedRun): MachineMove | null {
  if (end === 'done') return moved ? doneMove[kind] : null;
  const move = remainsMove[remains ?? 'dirty'];
  return moved || move === 'quarantine' ? move : null;
}
