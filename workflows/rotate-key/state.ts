/** What the exchange of a key remembers beyond what every rotation does: which key, from where to where, how far it is. */
import { ControlError } from '../../domain/errors.ts';
import { type ExchangedKey, exchanges, type RenewedCa } from '../../domain/rotation/key-exchanges.ts';
import type { StartMessage } from '../shared/lifecycle-messages.ts';
import { LifecycleState } from '../shared/lifecycle-state.ts';
import {
  type KeyForceMessage,
  type KeyGate,
  type KeyPhase,
  type KeyRotationResult,
  type KeyRotationStatus,
  keyPhases,
  parseKeyForce,
} from './messages.ts';

const rules = Object.freeze({
  phases: keyPhases,
  patienceMs: Object.freeze({ processes: [3_000, 60_000, 600_000], signers: [20_000, 600_000], confirm: [20_000, 600_000] }),
  lastPhaseOf: Object.freeze({ processes: 'promoting', signers: 'retiring', confirm: 'confirming' } as const),
});

export interface KeyRotationStart {
  readonly rotationId: string;
  readonly key: ExchangedKey;
  readonly subject: RenewedCa | '';
  readonly start: Required<StartMessage>;
  readonly now: number;
}

type Step = 'add' | 'promote' | 'retire';

export class KeyRotationState extends LifecycleState<KeyPhase, KeyGate> {
  readonly key: ExchangedKey;
  readonly subject: RenewedCa | '';
  outcome: KeyRotationStatus['outcome'] = null;
  from: string | null = null;
  to: string | null = null;
  opensAt: number | null = null;
  readonly #taken = new Set<Step>();

  constructor(input: KeyRotationStart) {
    super(rules, input);
    this.key = input.key;
    this.subject = input.subject;
  }

  override enter(phase: KeyPhase, now: number): void {
    super.enter(phase, now);
    this.opensAt = null;
  }

  /** The step has been taken: what it did may not be taken back. */
  took(step: Step): void {
    this.#taken.add(step);
  }

  get beyondReturn(): boolean {
    return this.#taken.has(exchanges[this.key].returnsUntil);
  }

  get ending(): string | null {
    return this.outcome;
  }

  /** @throws ControlError when the force has no gate to open any more */
  readForce(value: unknown): KeyForceMessage {
    const message = parseKeyForce(value);
    this.assertMayForce(message.phase);
    return message;
  }

  assertMayAbort(): void {
    if (!this.beyondReturn) return;
    throw new ControlError('INVALID_STATE', tooLate[exchanges[this.key].returnsUntil], { details: { reason: 'beyond-return' } });
  }

  status(): KeyRotationStatus {
    const { key, subject, outcome, from, to, opensAt } = this;
    return { ...this.common(), key, subject, outcome, from, to, opensAt };
  }

  result(): KeyRotationResult {
    const { rotationId, key, subject, from, to } = this;
    return { rotationId, key, subject, outcome: this.outcome ?? 'exchanged', from, to, overrides: this.overrides.size };
  }
}

const tooLate: Readonly<Record<Step, string>> = Object.freeze({
  add: 'the new certificate is there and harms nobody: let it end, or force the gate that waits',
  promote: 'the new key signs and the former private half is gone: let it end, then start another exchange',
  retire: 'the former key has been taken out: start another exchange',
});
