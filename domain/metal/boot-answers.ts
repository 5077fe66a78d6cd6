/**
 * What the boot server tells a machine behind a clean-up, as a table over what is left of the machine and why it is cleaned up (M6). A
 * machine boots its own disk where the run has not touched it, and where its image was just put there and is about to be started. Between
 * these, and behind a run that ended over its image, it is held: what a quarantined machine has on its disk starts by nobody's mistake.
 */
import type { MachineState } from './life-cycle.ts';
import type { Remains, RunKind } from './run-ends.ts';

/**
 * Why a boot server is told, by the number that a run sends: to keep holding the machine, to let the new system start, or because the run
 * goes back, is given up, or has failed.
 */
export const cleanUps = Object.freeze({ keeps: 0, letsGo: 1, takesBack: 2 });
export type CleanUpReason = keyof typeof cleanUps;

export type DiskAnswer = 'hold' | 'local';

/** `deployed`: local with the evidence of the image, else hold. */
const table: Readonly<Record<Remains, Readonly<Record<CleanUpReason, DiskAnswer | 'deployed'>>>> = Object.freeze({
  untouched: { keeps: 'hold', letsGo: 'local', takesBack: 'local' },
  clean: { keeps: 'hold', letsGo: 'hold', takesBack: 'hold' },
  dirty: { keeps: 'hold', letsGo: 'deployed', takesBack: 'hold' },
});

export interface CleanedUp {
  readonly kind: RunKind;
  readonly state: MachineState;
  readonly remains: Remains;
  /** The evidence of the image is stored. */
  readonly deployed: boolean;
  /** As it was sent: a number that is none of `cleanUps` holds. */
  readonly number: number;
}

const reasons = Object.keys(cleanUps) as CleanUpReason[];

export function diskAnswer({ kind, state, remains, deployed, number }: CleanedUp): DiskAnswer {
  const reason = reasons.find((one) => cleanUps[one] === number);
  // Only a provision run lets a machine go; one in quarantine is nobody's to start.
  if (reason === undefined || kind !== 'provision' || state === 'quarantined') return 'hold';
  const answer = table[remains][reason];
  if (answer === 'deployed') return deployed ? 'local' : 'hold';
  return answer;
}
