/**
 * The story of a batch (`batch/<id>`): held, approved by k of n, released in waves, watched to its end.
 *
 * The workflow is the convenience. Who approved, what may be released and how far a wave goes stand in the database, are judged there
 * by the activities, and are judged again by every machine; this only waits, calls them in order and shows what is going on. So a run
 * that is started by hand, reset, terminated or lied to can lose time, and can release nothing. `bc-reconcile-batches` starts one that
 * is missing; every step finds what is done.
 *
 * It lives as long as its batch, days at most: PINNED. It continues as a new run when its history grows, with the batch's id alone.
 */
import {
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  isCancellation,
  proxyActivities,
  workflowInfo,
} from '@temporalio/workflow';
import type { BatchFailure } from '../../activities/batch-ports.ts';
import type { BatchControlActivities } from '../../activities/batches-control.ts';
import type { BatchSigningActivities } from '../../activities/batches-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { type PhaseAttributes, showPhase } from '../shared/attributes.ts';
import { refusing } from '../shared/failures.ts';
import { showDetails } from '../shared/inbox.ts';
import { versioned } from '../shared/versioning.ts';
import { describeBatch } from './details.ts';
import { installBatchHandlers, mustGoOn } from './handlers.ts';
import { type ApproveBatchInput, type BatchResult, leavesKept, type Outcome, type Phase, parseApproveBatch } from './messages.ts';
import { BatchRun, fieldsOf, isReport, progressOf } from './state.ts';

const control = proxyActivities<BatchControlActivities>(onControl);
const signing = proxyActivities<BatchSigningActivities>(onSigning);
/** A wave may have thousands of signatures to make; the activity says how far it is. */
const { releaseWave } = proxyActivities<BatchSigningActivities>({
  ...onSigning,
  startToCloseTimeout: '30 minutes',
  heartbeatTimeout: '20 seconds',
});

export async function approveBatch(input: ApproveBatchInput): Promise<BatchResult> {
  const line = open(input);
  try {
    return await tell(line);
  } catch (error) {
    if (!isCancellation(error)) throw error;
    await CancellationScope.nonCancellable(() => end(line, { actor: 'temporal', reason: 'its workflow was cancelled', as: 'cancelled' }));
    throw error;
  }
}
versioned('PINNED', approveBatch);

/** The main line of one run: its state, and the wait that a message may end. */
interface Line {
  readonly run: BatchRun;
  waiting: CancellationScope | null;
}

function open(input: unknown): Line {
  const { workflowId } = workflowInfo();
  const { batchId } = refusing(() => {
    const message = parseApproveBatch(input);
    const expected = workflowIds.approveBatch(message.batchId);
    if (workflowId === expected) return message;
    throw new ControlError(
      'INVALID_INPUT',
      `batch ${message.batchId} is approved under the workflow id ${expected} only, not ${workflowId}`,
    );
  });
  const line: Line = { run: new BatchRun(batchId, Date.now()), waiting: null };
  installBatchHandlers(line.run, { show: () => show(line), wake: () => line.waiting?.cancel() });
  return line;
}

async function tell(line: Line): Promise<BatchResult> {
  const { run } = line;
  enter(line, 'planning');
  const opened = await control.openBatch.executeWithOptions({ summary: `batch ${run.batchId}` }, [
    { batchId: run.batchId, leaves: leavesKept },
  ]);
  const { facts, counts, leaves } = fieldsOf(opened);
  run.take(facts);
  run.takeCounts(counts);
  run.leaves = Array.isArray(leaves) ? (leaves as BatchRun['leaves']) : [];
  for (;;) {
    await untilDecided(line);
    if (run.ending !== null) await end(line, run.ending);
    if (run.facts?.state !== 'approved') return afterEnd(line);
    const released = await release(line);
    // Said to be approved by someone who is not believed: the wait goes on.
    if (released !== 'not-approved') return watch(line, released);
  }
}

/** Ended from outside: nothing more goes out, and what went out is still watched. */
function afterEnd(line: Line): Promise<BatchResult> {
  const outcome = line.run.outcome ?? endOf(line.run);
  return progressOf(line.run.counts).released > 0 ? watch(line, outcome) : finish(line, { outcome, failures: [] });
}

/** The activity does the waiting, without history; an approval that arrives here, or a message that says so, ends it. */
async function untilDecided(line: Line): Promise<void> {
  const { run } = line;
  if (run.pending) enter(line, 'waiting-approvals', waitingFor(run));
  while (run.pending && run.ending === null) {
    await continueIfLong(line);
    const before = run.seen;
    const facts = await interruptible(line, () =>
      control.awaitDecision.executeWithOptions({ summary: `approvals of batch ${run.batchId}` }, [{ batchId: run.batchId, seen: before }]),
    );
    run.take(facts);
    if (run.pending && run.seen !== before) enter(line, 'waiting-approvals', waitingFor(run));
  }
}

const waitingFor = ({ facts, seen }: BatchRun): Omit<PhaseAttributes, 'phase'> => ({
  waitingOn: ['approvers'],
  deadlineMs: facts?.notAfter ?? null,
  behind: Math.max(0, (facts?.required ?? 0) - seen),
});

/** One call, one wave. */
async function release(line: Line): Promise<Outcome | 'not-approved'> {
  const { run } = line;
  enter(line, 'releasing', { waitingOn: ['nodes'], behind: run.facts?.size ?? 0 });
  for (;;) {
    if (run.ending !== null) {
      await end(line, run.ending);
      return run.outcome ?? 'cancelled';
    }
    await continueIfLong(line);
    const report = await interruptible(line, () =>
      releaseWave.executeWithOptions({ summary: `next wave of batch ${run.batchId}` }, [
        { batchId: run.batchId, patienceMs: run.patienceMs },
      ]),
    );
    const done = takeReport(line, report);
    if (done !== null) return done;
  }
}

/** null: there is more to release, or nothing was said that a wave says. */
function takeReport(line: Line, report: unknown): Outcome | 'not-approved' | null {
  const { run } = line;
  if (!isReport(report)) return null;
  if (report.kind === 'not-approved') {
    run.facts = run.facts === null ? null : { ...run.facts, state: 'pending' };
    return 'not-approved';
  }
  run.takeCounts(report.counts);
  if (report.kind === 'waiting') run.reported(report.why);
  else run.waitsFor = report.kind === 'stopped' ? report.why : '';
  show(line);
  if (report.kind === 'stopped') return 'stopped';
  return report.kind === 'done' ? 'finished' : null;
}

async function watch(line: Line, outcome: Outcome): Promise<BatchResult> {
  const { run } = line;
  run.outcome = outcome === 'finished' ? null : outcome;
  enter(line, 'watching', { waitingOn: ['nodes'], deadlineMs: null });
  const ended = await control.awaitBatchEnd.executeWithOptions({ summary: `the ends of batch ${run.batchId}` }, [{ batchId: run.batchId }]);
  const { facts, counts, failures } = fieldsOf(ended);
  run.take(facts);
  run.takeCounts(counts);
  return finish(line, {
    outcome: run.facts?.state === 'approved' ? outcome : (run.outcome ?? endOf(run)),
    failures: Array.isArray(failures) ? (failures as BatchFailure[]) : [],
  });
}

async function end(line: Line, ending: { actor: string; reason: string; as: 'cancelled' | 'rejected' }): Promise<void> {
  const { run } = line;
  enter(line, 'cancelling');
  run.take(await control.cancelBatch({ batchId: run.batchId, ...ending }));
  run.outcome = endOf(run);
}

const endOf = ({ facts }: BatchRun): Outcome => {
  if (facts?.state === 'expired') return 'expired';
  if (facts?.state === 'cancelled') return facts.endedBecause.startsWith('rejected') ? 'rejected' : 'cancelled';
  return 'finished';
};

async function finish(line: Line, { outcome, failures }: { outcome: Outcome; failures: readonly BatchFailure[] }): Promise<BatchResult> {
  const { run } = line;
  run.outcome = outcome;
  enter(line, 'recording');
  await signing.recordBatchEvidence({ batchId: run.batchId });
  await condition(allHandlersFinished);
  enter(line, 'done');
  return run.result(failures);
}

/** Undefined: a message ended the wait. */
async function interruptible<T>(line: Line, call: () => Promise<T>): Promise<T | undefined> {
  const scope = new CancellationScope();
  line.waiting = scope;
  try {
    return await scope.run(call);
  } catch (error) {
    if (isCancellation(error) && scope.consideredCancelled && !CancellationScope.current().consideredCancelled) return undefined;
    throw error;
  } finally {
    line.waiting = null;
  }
}

/** Nothing that this run was sent is left to the next one, which would not know of it. */
async function continueIfLong({ run }: Line): Promise<void> {
  if (!mustGoOn()) return;
  for (;;) {
    await condition(allHandlersFinished);
    const approvals = run.takeKeptApprovals();
    if (approvals.length === 0) break;
    const summary = `${approvals.length} approvals of a flood`;
    run.take(await control.recordApprovals.executeWithOptions({ summary }, [{ batchId: run.batchId, approvals }]));
  }
  if (run.ending === null) await continueAsNew<typeof approveBatch>({ batchId: run.batchId });
}

function enter(line: Line, phase: Phase, shown: Omit<PhaseAttributes, 'phase'> = {}): void {
  line.run.enter(phase, Date.now());
  if (phase !== 'planning' && phase !== 'recording') showPhase({ phase, ...shown });
  show(line);
}

const show = ({ run }: Line): void => showDetails(describeBatch(run.status()));
