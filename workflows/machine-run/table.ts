/**
 * A run on a machine is a table of steps. Each row says what is sent for the step, how its end is seen, how long that may take, what
 * an operator's word does there, and what a failure does. The rest (attempts, holds, the way back) is the same for all of them.
 *
 * | part of a step | where |
 * |---|---|
 * | precondition | asked behind the last answer and before the send, in the activity (activities/metal-signing.ts) |
 * | act, idempotent | `acts`: commands, one id an attempt; or `change`: a step of the database |
 * | postcondition | `observe`: read from what is there (activities/metal-observations.ts) |
 * | deadline | of the plan, by the step's name (domain/metal/steps.ts) |
 * | heartbeat | the relay's, while whoever has the command is connected; silence is judged by the next attempt |
 * | undo | of each command (domain/metal/acts.ts), registered before it is sent |
 * | named wait | `waitsFor` |
 * | sends | domain/metal/steps.ts: what the batch is made of |
 */
import type { ChangeName } from '../../activities/metal-control.ts';
import type { ObservationName } from '../../activities/metal-observations.ts';
import type { ProofName } from '../../activities/metal-proofs.ts';
import type { CredentialChange } from '../../activities/metal-signing.ts';
import type { ActName } from '../../domain/metal/acts.ts';
import type { ActionPurpose } from '../../domain/metal/plan.ts';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import type { RunPhase } from '../shared/machine-messages.ts';
import type { MachineRun } from './state.ts';

export interface PlannedAct {
  readonly act: ActName;
  /** Which planned action, which boot; 0 where nothing is counted. */
  readonly ordinal: number;
}

export interface SecondChance {
  /** What was seen in the first one, asked before it is taken and when it was in vain: the reason of the failure. */
  readonly explain?: { readonly acts: readonly PlannedAct[]; readonly observe: ObservationName };
  readonly acts: (run: MachineRun) => readonly PlannedAct[];
  readonly saying: string;
}

export interface StoryStep {
  /** As in domain/metal/steps.ts. */
  readonly name: string;
  readonly phase: RunPhase;
  /** Whom it waits for, short enough for a search attribute. */
  readonly waitsFor: (run: MachineRun) => readonly string[];
  /** The same in words. */
  readonly saying: string;
  readonly acts?: (run: MachineRun) => readonly PlannedAct[];
  readonly change?: ChangeName | CredentialChange;
  readonly observe?: ObservationName | ProofName;
  /** How long the observation waits; default: the step's deadline. */
  readonly patienceMs?: (run: MachineRun) => number;
  /** Of a profile's own step: its place in the profile. */
  readonly ordinal?: number;
  /** Sent and looked at again until it is reached or its time is over; only for what does no harm. */
  readonly repeats?: true;
  /** Once, when nothing was observed in time. */
  readonly secondChance?: SecondChance;
  /** Of a step that was not seen to be reached in time, where nothing explains it. */
  readonly lateReason?: string;
  /** `hold`: an operator may have checked; after a while it has failed all the same. */
  readonly onFailure: 'hold' | 'fail';
  /** `assume`: it counts as reached; `wait-again`: the observation begins anew; `refuse`: evidence decides and no word. */
  readonly onOverride: 'assume' | 'wait-again' | 'refuse';
}

export interface Story {
  readonly kind: RunKind;
  /** In their order; steps that the plan has not are left out. */
  readonly steps: readonly StoryStep[];
}

/** The planned actions for a purpose, as the commands that carry them out. */
export const actionsOf = (run: MachineRun, purpose: ActionPurpose): readonly PlannedAct[] =>
  run.actions
    .filter((action) => action.purpose === purpose)
    .map(({ kind, ordinal }) => ({ act: kind === 'bmc.boot' ? 'set-boot' : purpose === 'off' ? 'power-off' : 'power', ordinal }));

export const once = (...names: readonly ActName[]): readonly PlannedAct[] => names.map((act) => ({ act, ordinal: 0 }));
