/**
 * What the approval of a batch remembers: what the database last said, and where the workflow is. It decides nothing. Losing it loses
 * a display: a run that continues as a new one begins with the batch's id alone.
 */
import type { BatchCounts, BatchFacts, BatchFailure } from '../../activities/batch-ports.ts';
import type { WaveReport } from '../../activities/batches-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import { isRecord } from '../shared/shape.ts';
import {
  type ApprovalMessage,
  type BatchResult,
  type BatchStatus,
  type Outcome,
  type Phase,
  pageOf,
  parseApproval,
  type ScopeLeafShown,
  type ScopePage,
} from './messages.ts';

/** Nudges that are answered at once; behind them the look that comes by itself is soon enough, and the history stays small. */
const nudgesAnswered = 50;
/** How long a wave that waits is only waited for, before it says why; after the last, until it goes on. */
const patienceMs: readonly number[] = [3_000, 60_000, 600_000];
/** Kept approvals that one activity judges: some moments of its 20 s, and 20 KiB of its input. */
const approvalsJudgedAtOnce = 100;

export class BatchRun {
  readonly batchId: string;
  phase: Phase = 'planning';
  since: number;
  facts: BatchFacts | null = null;
  leaves: readonly ScopeLeafShown[] = [];
  counts: BatchCounts | null = null;
  waitsFor = '';
  outcome: Outcome | null = null;
  /** Asked for by a message; the main line carries it out. */
  ending: { readonly actor: string; readonly reason: string; readonly as: 'cancelled' | 'rejected' } | null = null;
  /** Came in a flood, and nobody has judged them yet. */
  #kept: ApprovalMessage[] = [];
  #nudges = 0;
  #reports = 0;

  constructor(batchId: string, now: number) {
    this.batchId = batchId;
    this.since = now;
  }

  enter(phase: Phase, now: number): void {
    this.phase = phase;
    this.since = now;
  }

  /**
   * Takes what the database said. Whoever may write to the namespace may complete an activity by hand: what does not look like facts of
   * this batch changes nothing, and what does is asked again where it counts.
   */
  take(facts: unknown): void {
    if (!isFacts(facts) || facts.batchId !== this.batchId) return;
    this.facts = facts;
  }

  takeCounts(counts: unknown): void {
    if (isCounts(counts)) this.counts = counts;
  }

  get pending(): boolean {
    return (this.facts?.state ?? 'pending') === 'pending';
  }

  get seen(): number {
    return this.facts?.approvals.length ?? 0;
  }

  /** false: nothing is asked because of it. */
  nudge(): boolean {
    this.#nudges += 1;
    return this.#nudges <= nudgesAnswered;
  }

  keepApproval(approval: ApprovalMessage): void {
    this.#kept.push(approval);
  }

  /** The next of those that were kept, each once; empty when there is none, or nobody waits for one any more. */
  takeKeptApprovals(): readonly ApprovalMessage[] {
    if (!this.pending || this.ending !== null) this.#kept = [];
    return this.#kept.splice(0, approvalsJudgedAtOnce);
  }

  /** null: wait for as long as it takes, without a report. */
  get patienceMs(): number | null {
    return patienceMs[this.#reports] ?? null;
  }

  /** A wave said what it waits for; the next one that waits is given more time before it says so. */
  reported(why: string): void {
    this.waitsFor = why;
    this.#reports += 1;
  }

  /** @throws ControlError INVALID_INPUT, or INVALID_STATE when it is not waited for approvals */
  readApproval(value: unknown): ApprovalMessage {
    const message = parseApproval(value, this.batchId);
    this.assertWaits('approve');
    return message;
  }

  /** @throws ControlError INVALID_STATE */
  assertWaits(what: string): void {
    if (this.phase === 'planning' || (this.pending && this.outcome === null && this.ending === null)) return;
    const state = this.outcome ?? this.facts?.state ?? 'ended';
    throw new ControlError('INVALID_STATE', `batch ${this.batchId} is ${state}: there is nothing to ${what}`, {
      details: { reason: 'not-pending', state },
    });
  }

  page(request: unknown): ScopePage {
    return pageOf(this.leaves, this.facts?.size ?? 0, { batchId: this.batchId, request });
  }

  status(): BatchStatus {
    const { batchId, phase, since, facts, counts, waitsFor, outcome } = this;
    return { batchId, phase, since, ...shownOf(facts), ...progressOf(counts), waitsFor, outcome };
  }

  result(failures: readonly BatchFailure[]): BatchResult {
    return {
      batchId: this.batchId,
      outcome: this.outcome ?? 'finished',
      approvedBy: (this.facts?.approvals ?? []).map(({ kid }) => kid),
      released: progressOf(this.counts).released,
      states: this.counts?.states ?? {},
      failures,
    };
  }
}

const unknownYet = Object.freeze({
  state: null,
  reason: '',
  root: '',
  size: 0,
  required: 0,
  approvals: [],
  notAfter: null,
  proposedBy: '',
});

function shownOf(facts: BatchFacts | null): Pick<BatchStatus, keyof typeof unknownYet> {
  if (facts === null) return unknownYet;
  const { state, reason, root, size, required, approvals, notAfter, proposedBy } = facts;
  return { state, reason, root, size, required, approvals, notAfter, proposedBy };
}

const succeeded = 'done';

export function progressOf(counts: BatchCounts | null): Pick<BatchStatus, 'released' | 'finished' | 'failed'> {
  if (counts === null) return { released: 0, finished: 0, failed: 0 };
  const released = counts.total - counts.held;
  const finished = released - counts.open;
  return { released, finished, failed: finished - (counts.states[succeeded] ?? 0) };
}

const states = ['pending', 'approved', 'expired', 'cancelled'];
const hash = /^[0-9a-f]{64}$/;

const approvalsKept = 10_000;
const latest = 8.64e15;
const isInstant = (value: unknown): value is number => Number.isInteger(value) && Math.abs(value as number) <= latest;
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isApprovals = (value: unknown): boolean =>
  Array.isArray(value) &&
  value.length <= approvalsKept &&
  value.every((one: unknown) => isRecord(one) && typeof one['kid'] === 'string' && hash.test(one['kid']) && isInstant(one['at']));

/** Everything that is shown, and copied from there into a shell, has the form that ours has. */
const isFacts = (value: unknown): value is BatchFacts =>
  isRecord(value) &&
  typeof value['batchId'] === 'string' &&
  states.includes(value['state'] as string) &&
  isApprovals(value['approvals']) &&
  ['required', 'size'].every((name) => isCount(value[name])) &&
  isInstant(value['notAfter']) &&
  typeof value['root'] === 'string' &&
  hash.test(value['root']) &&
  ['reason', 'endedBecause', 'createdBy', 'proposedBy'].every((name) => typeof value[name] === 'string');

const isCounts = (value: unknown): value is BatchCounts =>
  isRecord(value) && ['total', 'held', 'open'].every((name) => typeof value[name] === 'number') && isRecord(value['states']);

const reports = ['not-approved', 'released', 'waiting', 'stopped', 'done'];

/** What a wave says; its counts are judged where they are taken. */
export const isReport = (value: unknown): value is WaveReport =>
  isRecord(value) &&
  reports.includes(value['kind'] as string) &&
  (typeof value['why'] === 'string' || (value['kind'] !== 'waiting' && value['kind'] !== 'stopped'));

/** Of an answer that somebody may have made by hand: none where it is no object. */
export const fieldsOf = (value: unknown): Readonly<Record<string, unknown>> => (isRecord(value) ? value : {});
