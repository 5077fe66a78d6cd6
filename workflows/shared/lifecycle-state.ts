/**
 * What every rotation of a key remembers, and its rules: pure, without Temporal, so that validators, handlers and the query
 * read one thing. It decides nothing: gates are judged by the activities, and an override counts there only once it is
 * recorded. Losing this state loses a display, never safety.
 */
import { ControlError } from '../../domain/errors.ts';
import {
  type AbortMessage,
  type Behind,
  type Blocked,
  type LifecycleStatus,
  type Override,
  type PauseMessage,
  parseAbort,
  type StartMessage,
} from './lifecycle-messages.ts';
import type { Signed } from './shape.ts';

/** More than this many overrides by hand is not a rotation any more; it also bounds the history. */
export const maxOverrides = 200;

/** Reports of closed gates in one run; each costs six events, so the history stays small whatever the fleet does. */
const reportBudget = 4;

export interface LifecycleRules<Phase extends string, Gate extends string> {
  /** In the order in which they come. */
  readonly phases: readonly Phase[];
  /** How long a closed gate is only waited for before it reports who is behind; after the last, until it opens. */
  readonly patienceMs: Readonly<Record<Gate, readonly number[]>>;
  /** Until when a force can open the gate. */
  readonly lastPhaseOf: Readonly<Record<Gate, Phase>>;
}

export abstract class LifecycleState<Phase extends string, Gate extends string> {
  rotationId: string;
  phase: Phase;
  since: number;
  planned = false;
  paused: LifecycleStatus['paused'] = null;
  blocked: Blocked | null = null;
  behind: Behind | null = null;
  aborting: AbortMessage | null = null;
  readonly overrides = new Map<string, Override>();
  /** Holds that ended by themselves, in this phase. */
  #repairs = 0;
  readonly #rules: LifecycleRules<Phase, Gate>;
  readonly #start: Required<StartMessage>;
  #reportsLeft = reportBudget;
  readonly #reports = new Map<Gate, number>();

  constructor(rules: LifecycleRules<Phase, Gate>, input: { rotationId: string; start: Required<StartMessage>; now: number }) {
    this.#rules = rules;
    this.rotationId = input.rotationId;
    this.#start = input.start;
    this.since = input.now;
    this.phase = rules.phases[0] as Phase;
  }

  /** An abort comes too late. */
  abstract get beyondReturn(): boolean;
  /** How it ended; null while it runs. */
  abstract get ending(): string | null;
  /** @throws ControlError INVALID_STATE beyond the point of no return, in the words of this rotation */
  abstract assertMayAbort(): void;

  enter(phase: Phase, now: number): void {
    this.phase = phase;
    this.since = now;
    this.behind = null;
    this.#repairs = 0;
  }

  /** The cause of a hold is gone. */
  repaired(): void {
    this.blocked = null;
    this.#repairs += 1;
  }

  /** How long the next hold lasts at least: a cause that comes back at once must not fill the history. */
  get leastHoldMs(): number {
    return this.#repairs === 0 ? 0 : Math.min(10_000 * 2 ** (this.#repairs - 1), 600_000);
  }

  /** How long the next call of this gate's activity may wait before it reports; null: until it opens. */
  nextPatience(gate: Gate): number | null {
    const made = this.#reports.get(gate) ?? 0;
    const next = this.#rules.patienceMs[gate][made];
    if (next === undefined || this.#reportsLeft === 0) return null;
    this.#reportsLeft -= 1;
    this.#reports.set(gate, made + 1);
    return next;
  }

  pause(message: PauseMessage, now: number): void {
    this.paused = { ...message, since: now };
  }

  resume(): void {
    this.paused = null;
    this.blocked = null;
  }

  /** An abort lifts a pause: who takes a rotation back does not want it held. */
  startAbort(message: AbortMessage): void {
    this.aborting = message;
    this.resume();
  }

  get held(): boolean {
    return this.paused !== null || this.blocked !== null;
  }

  /** @throws ControlError INVALID_STATE once the rotation has ended */
  /** @throws ControlError INVALID_INPUT; INVALID_STATE when it has ended or is beyond return */
  readAbort(value: unknown): AbortMessage {
    const message = parseAbort(value);
    this.assertRuns('abort');
    this.assertMayAbort();
    return message;
  }

  assertRuns(what: string): void {
    if (this.#rules.phases.indexOf(this.phase) < this.#rules.phases.length - 1) return;
    throw new ControlError('INVALID_STATE', `the rotation has ended (${this.ending ?? this.phase}): there is nothing to ${what}`, {
      details: { reason: 'ended' },
    });
  }

  /** @throws ControlError when a force has no gate to open any more */
  assertMayForce(gate: Gate): void {
    this.assertRuns('force');
    const { phases, lastPhaseOf } = this.#rules;
    if (phases.indexOf(this.phase) > phases.indexOf(lastPhaseOf[gate])) {
      throw new ControlError('INVALID_STATE', `the ${gate} gate has been passed: the rotation is at ${this.phase}`, {
        details: { reason: 'gate-passed' },
      });
    }
    this.assertRoom();
  }

  /** @throws ControlError RATE_LIMITED */
  assertRoom(): void {
    if (this.overrides.size < maxOverrides) return;
    throw new ControlError(
      'RATE_LIMITED',
      `${maxOverrides} overrides are recorded for this rotation: abort it and look at the fleet first`,
      {
        details: { reason: 'too-many-overrides' },
      },
    );
  }

  /** What every status says. */
  protected common(): Omit<LifecycleStatus, 'phase'> & { readonly phase: Phase } {
    return {
      rotationId: this.rotationId,
      phase: this.phase,
      since: this.since,
      paused: this.paused,
      blocked: this.blocked,
      behind: this.behind,
      overrides: [...this.overrides.values()],
      ...startedBy(this.#start),
    };
  }
}

const startedBy = ({ actor, reason }: Signed): Pick<LifecycleStatus, 'startedBy' | 'reason'> => ({ startedBy: actor, reason });

export const overrideKey = (override: Pick<Override, 'kind' | 'subject'>): string => `${override.kind}/${override.subject}`;
