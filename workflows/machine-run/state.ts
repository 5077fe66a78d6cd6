/**
 * What a run on a machine remembers, and its rules: pure, without Temporal. It decides nothing that matters to the machine: what was
 * sent and proven stands in the database, and what is left of the machine is judged there. Losing this loses a display.
 */
import type { PlannedRun, StepRecord } from '../../activities/metal-ports.ts';
import { ControlError } from '../../domain/errors.ts';
import { type ActName, actOf, type Undo, undos } from '../../domain/metal/acts.ts';
import type { PlannedAction } from '../../domain/metal/plan.ts';
import type { Remains, RunEnd, RunKind } from '../../domain/metal/run-ends.ts';
import type {
  LastAnswer,
  MachineRunInput,
  OverrideMessage,
  RunPhase,
  RunResult,
  RunStatus,
  RunStepStatus,
} from '../shared/machine-messages.ts';
import { clip, type Signed } from '../shared/shape.ts';
import type { StoryStep } from './table.ts';

/**
 * Everything that belongs to one step. A transition replaces it whole, so that no deadline, attempt or answer of one step can be taken for
 * the next one's (M8).
 */
export class StepScope {
  readonly step: StoryStep | null;
  readonly name: string;
  readonly since: number;
  deadline: number | null;
  saying: string;
  attempt = 1;
  last: LastAnswer | null = null;
  overridden: OverrideMessage | null = null;
  /** It failed, and an operator may say otherwise. */
  held: { readonly reason: string; readonly detail: string } | null = null;

  constructor(input: { step: StoryStep | null; name: string; saying: string; now: number; deadline: number | null }) {
    this.step = input.step;
    this.name = input.name;
    this.since = input.now;
    this.deadline = input.deadline;
    this.saying = input.saying;
  }
}

export interface Stopping extends Signed {
  readonly as: 'cancel' | 'give-up';
}

type Message = RunStatus['messages'][number];

const stepsShown = 60;
const messagesKept = 50;
const detailKept = 600;

export class MachineRun {
  readonly kind: RunKind;
  readonly input: MachineRunInput;
  plan: PlannedRun | null = null;
  batchId: string | null = null;
  phase: RunPhase = 'planning';
  since: number;
  scope: StepScope;
  /** Latest attempt of each act. */
  readonly sent: Partial<Record<ActName, number>> = {};
  /** Acts that may have had an effect. */
  readonly begun = new Set<ActName>();
  /** Sent, and not known to have ended. */
  inFlight: { readonly act: ActName; readonly n: number } | null = null;
  /** What happened and is not written down yet; the next activity takes it along. */
  #unwritten: StepRecord[] = [];
  readonly shown: RunStepStatus[] = [];
  readonly messages: Message[] = [];
  /** The boot server may have been told to let the machine start its disk, and was not told to hold it since. */
  letGo = false;
  stopping: Stopping | null = null;
  goingBack = false;
  reboots = 0;
  end: RunEnd | null = null;
  remains: Remains | null = null;
  failure = '';
  detail = '';

  constructor(kind: RunKind, input: MachineRunInput, now: number) {
    this.kind = kind;
    this.input = input;
    this.since = now;
    this.scope = new StepScope({ step: null, name: '', saying: 'the plan', now, deadline: null });
  }

  get runId(): string {
    return this.plan?.runId ?? '';
  }

  get actions(): readonly PlannedAction[] {
    return this.plan?.actions ?? [];
  }

  deadlineOf(step: string): number | undefined {
    return this.plan?.steps.find(({ name }) => name === step)?.deadlineMs;
  }

  has(step: string): boolean {
    return this.deadlineOf(step) !== undefined;
  }

  /** A new scope: whatever the step before knew is gone with it (M8). */
  begin(step: StoryStep, now: number): void {
    const deadlineMs = this.deadlineOf(step.name);
    const deadline = deadlineMs === undefined ? null : now + deadlineMs;
    this.scope = new StepScope({ step, name: step.name, saying: step.saying, now, deadline });
    this.note(step.name, 'started', { now });
  }

  enter(phase: RunPhase, scope: StepScope): void {
    if (phase !== this.phase) this.since = scope.since;
    this.phase = phase;
    this.scope = scope;
  }

  /** The next id of an act: none is used twice in a run. */
  count(act: ActName): number {
    const n = (this.sent[act] ?? 0) + 1;
    this.sent[act] = n;
    this.begun.add(act);
    return n;
  }

  /** What the commands that may have begun ask for on the way back. */
  get undo(): readonly Undo[] {
    const wanted = new Set([...this.begun].flatMap((act) => actOf(act).undo ?? []));
    return undos.filter((undo) => wanted.has(undo));
  }

  note(
    step: string,
    state: StepRecord['state'],
    {
      detail = '',
      by = 'control-plane',
      now,
      attempt = this.scope.attempt,
    }: {
      detail?: string;
      by?: string;
      now: number;
      attempt?: number;
    },
  ): void {
    const row = { step, attempt, state, detail: clip(detail, detailKept), at: now };
    const shown: RunStepStatus = by === 'control-plane' || state !== 'done' ? row : { ...row, state: 'overridden' };
    const before = this.shown.findIndex((other) => other.step === step && other.attempt === attempt);
    if (before >= 0) this.shown[before] = shown;
    else this.shown.push(shown);
    if (this.shown.length > stepsShown) this.shown.shift();
    this.#unwritten.push({ runId: this.runId, ...row, by });
  }

  takeUnwritten(): readonly StepRecord[] {
    const rows = this.#unwritten;
    this.#unwritten = [];
    return rows;
  }

  keep(message: Message): void {
    this.messages.push(message);
    if (this.messages.length > messagesKept) this.messages.shift();
  }

  /** @throws ControlError INVALID_STATE once the run is at its end */
  assertRuns(what: string): void {
    if (this.phase !== 'done' && this.phase !== 'finishing') return;
    throw new ControlError('INVALID_STATE', `the run is at its end (${this.end ?? this.phase}): there is nothing to ${what}`, {
      details: { reason: 'ended' },
    });
  }

  /** @throws ControlError INVALID_STATE: already on its way back */
  assertMayCancel(): void {
    this.assertRuns('cancel');
    if (this.stopping === null && !this.goingBack) return;
    throw new ControlError('INVALID_STATE', 'the run is on its way back: give up to end it where it stands', {
      details: { reason: 'going-back' },
    });
  }

  /** @throws ControlError INVALID_STATE for a step that is not the one that waits, or that no word decides */
  assertMayOverride({ step }: OverrideMessage): void {
    this.assertRuns('override');
    const { scope } = this;
    if (this.goingBack || scope.step === null || scope.name !== step) {
      const now = this.goingBack ? 'on its way back' : scope.name === '' ? `at ${this.phase}` : `at ${scope.name}`;
      throw new ControlError('INVALID_STATE', `the run is ${now}, not at ${clip(step)}: override the step that waits`, {
        details: { reason: 'not-at-step' },
      });
    }
    if (scope.step.onOverride !== 'refuse') return;
    throw new ControlError(
      'INVALID_STATE',
      `${step} is decided by evidence and by nobody's word: wait for it, cancel, or give up and begin a new run`,
      { details: { reason: 'evidence-decides' } },
    );
  }

  status(): RunStatus {
    const { kind, plan, phase, scope, batchId, end, remains, failure, input } = this;
    return {
      machineId: input.machineId,
      kind,
      runId: plan?.runId ?? null,
      siteId: plan?.siteId ?? null,
      bmc: plan?.bmc ?? null,
      phase,
      step: scope.name,
      attempt: scope.attempt,
      since: scope.since,
      deadline: scope.deadline,
      waitsFor: phase === 'done' ? '' : scope.saying,
      last: scope.last,
      next: this.next(),
      batchId,
      steps: [...this.shown],
      messages: [...this.messages],
      end,
      remains,
      failure,
      startedBy: input.actor,
      reason: input.reason,
    };
  }

  /** What to type next. */
  next(): string {
    const { phase, scope, input, batchId } = this;
    const { machineId } = input;
    if (phase === 'done') return `better-compute machine show ${machineId} --timeline`;
    if (phase === 'waiting-approvals') return `better-compute batch show ${batchId}`;
    const say = (verb: string): string => `better-compute machine ${verb} ${machineId}`;
    if (scope.held !== null && scope.step?.onOverride !== 'refuse')
      return `${say('override')} --step ${scope.name} --reason <what was checked>`;
    return this.goingBack ? `${say('give-up')} --reason <why>` : `${say('show')} --timeline`;
  }

  result(): RunResult {
    const { kind, input, plan, end, remains, failure, detail, batchId, reboots } = this;
    return {
      machineId: input.machineId,
      kind,
      runId: plan?.runId ?? null,
      end: end ?? 'failed',
      remains,
      failure,
      detail,
      batchId,
      reboots,
    };
  }
}
