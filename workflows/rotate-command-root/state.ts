/**
 * What a rotation's workflow remembers, and its rules: pure, without Temporal, so that validators, handlers and the query
 * read one thing. It decides nothing about the fleet: the gates are judged from the database by the activities, and an
 * override counts there only once it is recorded. Losing this state loses a display, never safety.
 */
import { ControlError } from '../../domain/errors.ts';
import {
  type AbortMessage,
  type Behind,
  type ExcludeMessage,
  type ForceMessage,
  type Gate,
  type Override,
  type PauseMessage,
  type Phase,
  parseAbort,
  parseExclude,
  parseForce,
  phases,
  type RotationStatus,
  type StartMessage,
} from './messages.ts';

/** More than this many overrides by hand is not a rotation any more; it also bounds the history. */
export const maxOverrides = 200;

/** How long a closed gate is only waited for before it reports who is behind; after the last, until it opens. */
export const patienceMs: Readonly<Record<Gate, readonly number[]>> = Object.freeze({
  processes: [20_000, 600_000],
  fleet: [3_000, 60_000, 600_000],
  signers: [20_000, 600_000],
  confirm: [20_000, 600_000],
});

/** Reports of closed gates in one run; each costs six events, so the history stays small whatever the fleet does. */
const reportBudget = 4;

const lastPhaseOf: Readonly<Record<Gate, Phase>> = Object.freeze({
  processes: 'switching',
  fleet: 'switching',
  signers: 'waiting-signers',
  confirm: 'confirming',
});

export class RotationState {
  rotationId: string;
  phase: Phase = 'planning';
  since: number;
  planned = false;
  dropped = false;
  outcome: RotationStatus['outcome'] = null;
  oldRoot: string | null = null;
  newRoot: string | null = null;
  trustVersion: number | null = null;
  dropOpensAt: number | null = null;
  paused: RotationStatus['paused'] = null;
  blocked: RotationStatus['blocked'] = null;
  behind: Behind | null = null;
  aborting: AbortMessage | null = null;
  /** Holds that ended by themselves, in this phase. */
  #repairs = 0;
  readonly overrides = new Map<string, Override>();
  readonly #start: Required<StartMessage>;
  #reportsLeft = reportBudget;
  readonly #reports = new Map<Gate, number>();

  constructor(rotationId: string, start: Required<StartMessage>, now: number) {
    this.rotationId = rotationId;
    this.#start = start;
    this.since = now;
  }

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
    const next = patienceMs[gate][made];
    if (next === undefined || this.#reportsLeft === 0) return null;
    this.#reportsLeft -= 1;
    this.#reports.set(gate, made + 1);
    return next;
  }

  /** @throws ControlError when the force has no gate to open any more */
  readForce(value: unknown): ForceMessage {
    const message = parseForce(value);
    this.#assertOpen('force');
    const last = lastPhaseOf[message.phase];
    if (phases.indexOf(this.phase) > phases.indexOf(last)) {
      throw new ControlError('INVALID_STATE', `the ${message.phase} gate has been passed: the rotation is at ${this.phase}`, {
        details: { reason: 'gate-passed' },
      });
    }
    this.#assertRoom();
    return message;
  }

  readExclude(value: unknown): ExcludeMessage {
    const message = parseExclude(value);
    this.#assertOpen('exclude');
    this.#assertRoom();
    return message;
  }

  readAbort(value: unknown): AbortMessage {
    const message = parseAbort(value);
    this.#assertOpen('abort');
    if (this.dropped) {
      throw new ControlError('INVALID_STATE', 'the old root has been dropped: start a new rotation instead', {
        details: { reason: 'already-dropped' },
      });
    }
    return message;
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

  status(): RotationStatus {
    return {
      rotationId: this.rotationId,
      phase: this.phase,
      since: this.since,
      outcome: this.outcome,
      oldRoot: this.oldRoot,
      newRoot: this.newRoot,
      trustVersion: this.trustVersion,
      dropOpensAt: this.dropOpensAt,
      paused: this.paused,
      blocked: this.blocked,
      behind: this.behind,
      overrides: [...this.overrides.values()],
      startedBy: this.#start.actor,
      reason: this.#start.reason,
    };
  }

  #assertOpen(what: string): void {
    if (this.phase !== 'done') return;
    throw new ControlError('INVALID_STATE', `the rotation has ended (${this.outcome ?? 'done'}): there is nothing to ${what}`, {
      details: { reason: 'ended' },
    });
  }

  #assertRoom(): void {
    if (this.overrides.size < maxOverrides) return;
    throw new ControlError(
      'RATE_LIMITED',
      `${maxOverrides} overrides are recorded for this rotation: abort it and look at the fleet first`,
      {
        details: { reason: 'too-many-overrides' },
      },
    );
  }
}

export const overrideKey = (override: Pick<Override, 'kind' | 'subject'>): string => `${override.kind}/${override.subject}`;
