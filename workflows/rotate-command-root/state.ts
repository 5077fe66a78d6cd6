/** What a rotation of the command root remembers beyond what every rotation does: the roots, the trust version, the drop. */
import { ControlError } from '../../domain/errors.ts';
import { LifecycleState } from '../shared/lifecycle-state.ts';
import {
  type ExcludeMessage,
  type ForceMessage,
  type Gate,
  type Phase,
  parseExclude,
  parseForce,
  phases,
  type RotationStatus,
  type StartMessage,
} from './messages.ts';

const rules = Object.freeze({
  phases,
  patienceMs: Object.freeze({
    processes: [20_000, 600_000],
    fleet: [3_000, 60_000, 600_000],
    signers: [20_000, 600_000],
    confirm: [20_000, 600_000],
  }),
  lastPhaseOf: Object.freeze({ processes: 'switching', fleet: 'switching', signers: 'waiting-signers', confirm: 'confirming' } as const),
});

export class RotationState extends LifecycleState<Phase, Gate> {
  dropped = false;
  outcome: RotationStatus['outcome'] = null;
  oldRoot: string | null = null;
  newRoot: string | null = null;
  trustVersion: number | null = null;
  dropOpensAt: number | null = null;

  constructor(rotationId: string, start: Required<StartMessage>, now: number) {
    super(rules, { rotationId, start, now });
  }

  get beyondReturn(): boolean {
    return this.dropped;
  }

  get ending(): string | null {
    return this.outcome;
  }

  /** @throws ControlError when the force has no gate to open any more */
  readForce(value: unknown): ForceMessage {
    const message = parseForce(value);
    this.assertMayForce(message.phase);
    return message;
  }

  readExclude(value: unknown): ExcludeMessage {
    const message = parseExclude(value);
    this.assertRuns('exclude');
    this.assertRoom();
    return message;
  }

  assertMayAbort(): void {
    if (!this.dropped) return;
    throw new ControlError('INVALID_STATE', 'the old root has been dropped: start a new rotation instead', {
      details: { reason: 'already-dropped' },
    });
  }

  status(): RotationStatus {
    return {
      ...this.common(),
      outcome: this.outcome,
      oldRoot: this.oldRoot,
      newRoot: this.newRoot,
      trustVersion: this.trustVersion,
      dropOpensAt: this.dropOpensAt,
    };
  }
}
