/**
 * What each boot server of a machine's site has to tell it, compared with what it was told last (M6). Runs tell their boot servers themselves;
 * what is decided here is for what no run tells: a run that was ended behind its workflow's back, a quarantine or a deletion of a machine at
 * rest, a clean-up that failed or went to another agent, an agent that joined anew and may have lost its records.
 *
 * Invariants: a machine under maintenance is held by every boot server of its site. The local disk is demanded only where a clean-up of the
 * machine's last run would have said it, and of a machine that was deleted behind a proven wipe, or whose tombstone a person lifted: who comes
 * next may have its addresses.
 */
import { day, minute } from '../time.ts';
import { cleanUps, type DiskAnswer, diskAnswer } from './boot-answers.ts';
import { isUnderMaintenance, type MachineState } from './life-cycle.ts';
import type { Remains, RunEnd, RunKind } from './run-ends.ts';

/** A command about the machine to one boot server. */
export interface BootCommandFact {
  readonly kind: 'boot.prepareRamdisk' | 'boot.cleanUp';
  /** Of the entry that it makes, or takes away. */
  readonly runId: string;
  /** Of a clean-up. */
  readonly answer: DiskAnswer | null;
  /** `never`: it was refused before anything was done; `no-server`: the agent has none; `unknown`: it may have had its effect. */
  readonly end: 'done' | 'pending' | 'never' | 'no-server' | 'unknown';
  readonly endedAt: number;
  /** As the agent said it; empty where it said none. */
  readonly error: string;
  /** Signed for the identity that the agent has now: one that joined anew may have lost its records. */
  readonly isOfThisIdentity: boolean;
  /** Sent by what is decided here, about the state that the machine is in. */
  readonly isOwn: boolean;
}

export interface BootServerFacts {
  /** Its agent has a live session. */
  readonly connected: boolean;
  /** In the order of the agent's log. */
  readonly told: readonly BootCommandFact[];
}

export interface TellingRun {
  readonly id: string;
  readonly kind: RunKind;
  readonly end: RunEnd | 'open';
  /** null for one that is done. */
  readonly remains: Remains | null;
  /** The evidence of its image is stored. */
  readonly deployed: boolean;
}

export interface BootedMachine {
  readonly state: MachineState;
  /** Of one that was deleted. */
  readonly tombstone: 'none' | 'stands' | 'lifted';
  /** Some address of it is known, by which a boot server would tell it. */
  readonly hasAddress: boolean;
  /** The run that told a boot server last; null: none that is on record. */
  readonly lastRun: TellingRun | null;
  /** A run that boots it is open. Whether its workflow is there is the caller's to know. */
  readonly isInRun: boolean;
}

/** What it is told from its state alone; null: nothing has to be said. */
export function demandedAnswer({ state, tombstone, lastRun }: BootedMachine): DiskAnswer | null {
  if (isUnderMaintenance(state)) return 'hold';
  if (state === 'deleted') return tombstone === 'lifted' || (tombstone === 'none' && isErased(lastRun)) ? 'local' : null;
  if (lastRun === null) return null;
  const { kind, end, remains, deployed } = lastRun;
  const isDone = end === 'done';
  return diskAnswer({
    kind,
    state,
    remains: remains ?? 'dirty',
    // The system of a machine that was quarantined since, and let go by a person, is nobody's to start.
    deployed: deployed && state === 'provisioned',
    number: isDone ? cleanUps.letsGo : cleanUps.takesBack,
  });
}

const isErased = (run: TellingRun | null): boolean => run?.remains === 'clean' || (run?.kind === 'retire' && run.end === 'done');

export type Telling =
  | { readonly kind: 'settled' }
  /** A command is on its way. */
  | { readonly kind: 'under-way' }
  /** Between two attempts; or its agent is not connected. */
  | { readonly kind: 'pause' | 'away'; readonly answer: DiskAnswer; readonly failed: number; readonly error: string }
  | { readonly kind: 'tell'; readonly answer: DiskAnswer; readonly runId: string; readonly n: number; readonly failed: number };

/** In the result of a clean-up of no run: 12 hex digits, as ids of runs are. */
const noRun = '000000000000';

/** Quick attempts; then a person is shown it, and it is tried once a day. */
export const quickTries = 5;
const pauseMs = (failed: number): number => (failed >= quickTries ? day : 4 ** (failed - 1) * minute);

export function judgeTelling(machine: BootedMachine, { connected, told }: BootServerFacts, now: number): Telling {
  const answer = demandedAnswer(machine);
  const standing = standingOf(told);
  if (answer === null || isRight(machine, standing, answer)) return { kind: 'settled' };
  if (standing.isPending) return { kind: 'under-way' };
  const { failed, error, tries } = standing;
  if (standing.noServerAt !== null && now < standing.noServerAt + day) return { kind: 'settled' };
  if (!connected) return { kind: 'away', answer, failed, error };
  if (failed > 0 && now < standing.failedAt + pauseMs(failed)) return { kind: 'pause', answer, failed, error };
  return { kind: 'tell', answer, runId: standing.entryOf ?? machine.lastRun?.id ?? noRun, n: tries + 1, failed };
}

function isRight(machine: BootedMachine, { answer, entryOf, isPending }: Standing, demanded: DiskAnswer): boolean {
  if (isPending) return false;
  const isHeld = isUnderMaintenance(machine.state);
  // What its owner has a boot server say of strangers may be the disk.
  if (answer === 'unsaid') return !isHeld || !machine.hasAddress;
  // An entry never lets it boot its disk. That of an open run goes when the run ends: whoever resets its workflow needs it.
  return answer === demanded && (entryOf === null || machine.isInRun);
}

interface Standing {
  readonly answer: DiskAnswer | 'unsaid' | 'unclear';
  /** The run whose entry may stand. */
  readonly entryOf: string | null;
  readonly isPending: boolean;
  /** Own commands, and those that failed since one was done. */
  readonly tries: number;
  readonly failed: number;
  readonly failedAt: number;
  readonly error: string;
  readonly noServerAt: number | null;
}

const untold: Standing = Object.freeze({
  answer: 'unsaid',
  entryOf: null,
  isPending: false,
  tries: 0,
  failed: 0,
  failedAt: 0,
  error: '',
  noServerAt: null,
});

const standingOf = (told: readonly BootCommandFact[]): Standing =>
  told.reduce<Standing>((before, fact) => ({ ...before, ...counted(before, fact), ...effectOf(before, fact) }), untold);

function counted({ tries, failed }: Standing, { isOwn, end, endedAt, error }: BootCommandFact): Partial<Standing> {
  if (!isOwn) return {};
  const isGood = end === 'done' || end === 'no-server' || end === 'pending';
  return { tries: tries + 1, ...(isGood ? { failed: 0 } : { failed: failed + 1, failedAt: endedAt, error }) };
}

/** As daemon/site/boot/entry-changes.ts moves the machine's record. */
function effectOf({ entryOf }: Standing, { kind, runId, answer, end, endedAt, isOfThisIdentity }: BootCommandFact): Partial<Standing> {
  if (end === 'never') return {};
  if (end === 'pending') return { isPending: true };
  if (end === 'no-server') return { noServerAt: endedAt };
  const isSure = end === 'done' && isOfThisIdentity;
  if (kind === 'boot.prepareRamdisk') return { noServerAt: null, entryOf: runId, answer: isSure ? 'hold' : 'unclear' };
  // A clean-up of another run than the one whose entry stands changes nothing but for the log.
  if (!isSure || answer === null || (entryOf !== null && entryOf !== runId)) return { noServerAt: null, answer: 'unclear' };
  return { noServerAt: null, entryOf: null, answer };
}
