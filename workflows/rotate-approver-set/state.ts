/** What a change of the approver set remembers beyond what every rotation does: from which set to which, and where it is published. */
import type { ApproverChange, ApproverPlanned } from '../../activities/approver-set-control.ts';
import { ControlError } from '../../domain/errors.ts';
import type { StartMessage } from '../shared/lifecycle-messages.ts';
import { LifecycleState } from '../shared/lifecycle-state.ts';
import { isRecord } from '../shared/shape.ts';
import {
  type ApproverExcludeMessage,
  type ApproverForceMessage,
  type ApproverGate,
  type ApproverPhase,
  type ApproverSetResult,
  type ApproverSetStatus,
  approverPhases,
  parseApproverExclude,
  parseApproverForce,
} from './messages.ts';

const isShown = (set: unknown): boolean =>
  isRecord(set) &&
  ['epoch', 'approvers', 'threshold'].every((name) => Number.isSafeInteger(set[name])) &&
  (set['sha256'] === null || (typeof set['sha256'] === 'string' && /^[0-9a-f]{64}$/.test(set['sha256'])));

const rules = Object.freeze({
  phases: approverPhases,
  patienceMs: Object.freeze({ publication: [20_000, 600_000], fleet: [3_000, 60_000, 600_000] }),
  lastPhaseOf: Object.freeze({ publication: 'waiting-publication', fleet: 'waiting-fleet' } as const),
});

export interface ApproverSetStart {
  readonly rotationId: string;
  readonly start: Required<StartMessage>;
  readonly change: ApproverChange;
  readonly now: number;
}

export class ApproverSetState extends LifecycleState<ApproverPhase, ApproverGate> {
  readonly change: ApproverChange;
  readonly actor: string;
  stored = false;
  outcome: ApproverSetStatus['outcome'] = null;
  planned$: ApproverPlanned | null = null;
  trustVersion: number | null = null;

  constructor(input: ApproverSetStart) {
    super(rules, input);
    this.change = input.change;
    this.actor = input.start.actor;
  }

  /** Whoever may write to the namespace may complete the activity by hand: what is no plan is not shown. What counts is judged at the store. */
  takePlan(planned: unknown): void {
    if (isRecord(planned) && isShown(planned['from']) && isShown(planned['to'])) this.planned$ = planned as unknown as ApproverPlanned;
  }

  /** A set that may have reached a machine is only left by another change that its own approvers sign. */
  get beyondReturn(): boolean {
    return this.stored;
  }

  get ending(): string | null {
    return this.outcome;
  }

  /** @throws ControlError when the force has no gate to open any more */
  readForce(value: unknown): ApproverForceMessage {
    const message = parseApproverForce(value);
    this.assertMayForce(message.phase);
    return message;
  }

  readExclude(value: unknown): ApproverExcludeMessage {
    const message = parseApproverExclude(value);
    this.assertRuns('exclude');
    this.assertRoom();
    return message;
  }

  assertMayAbort(): void {
    if (!this.stored) return;
    throw new ControlError('INVALID_STATE', 'the set is published: what leads back is another change, signed by its approvers', {
      details: { reason: 'beyond-return' },
    });
  }

  status(): ApproverSetStatus {
    const { outcome, planned$, trustVersion } = this;
    return { ...this.common(), outcome, from: planned$?.from ?? null, to: planned$?.to ?? null, trustVersion };
  }

  result(): ApproverSetResult {
    const { rotationId, outcome, change, trustVersion } = this;
    return { rotationId, outcome: outcome ?? 'changed', epoch: change.epoch, trustVersion, overrides: this.overrides.size };
  }
}
