/**
 * The story of a run on a machine: plan, approval, the steps of its table, the end. A run is always at exactly one step, waits for somebody
 * it names, and ends in exactly one of done, failed and cancelled, with what is left of the machine judged from facts.
 *
 * The workflow is the convenience: what may be sent is in the batch, what was proven is in the database, and machines judge again. A
 * run that is started by hand, reset, terminated or lied to can lose time and cannot make a disk clean.
 */
import { allHandlersFinished, CancellationScope, condition, isCancellation, proxyActivities, workflowInfo } from '@temporalio/workflow';
import type { BatchControlActivities } from '../../activities/batches-control.ts';
import type { MetalControlActivities } from '../../activities/metal-control.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { onControl } from '../shared/activity-options.ts';
import { findRefusal, refusing, toFailure } from '../shared/failures.ts';
import type { MachineRunInput, RunResult } from '../shared/machine-messages.ts';
import { isRecord } from '../shared/shape.ts';
import { installRunHandlers } from './handlers.ts';
import { enterPhase, interruptible, type Line, RunStopped, show } from './line.ts';
import { stepsFor } from './own-steps.ts';
import { MachineRun, StepScope } from './state.ts';
import type { Story } from './table.ts';
import { takeStep } from './take-step.ts';
import { goBack } from './way-back.ts';

const control = proxyActivities<MetalControlActivities & Pick<BatchControlActivities, 'awaitDecision' | 'cancelBatch'>>(onControl);
const { planMachineRun } = proxyActivities<MetalControlActivities>({ ...onControl, startToCloseTimeout: '1 minute' });

export type RunInput = MachineRunInput & { readonly profile?: Readonly<Record<string, unknown>> };

/** @param read the parser of the workflow's own input @throws a failure for an input or an id that cannot be */
export async function runMachine(story: Story, read: () => RunInput): Promise<RunResult> {
  const input = refusing(() => assertOwnId(story, read()));
  const line: Line = { run: new MachineRun(story.kind, input, Date.now()), waiting: null, shownPhase: null };
  installRunHandlers(line.run, { show: () => show(line), wake: () => line.waiting?.cancel() });
  show(line);
  // A machine that is claimed is let go again, whoever cancels meanwhile.
  await CancellationScope.nonCancellable(() => plan(line, input));
  try {
    // Words that came while it was planned count before anything is sent.
    await condition(allHandlersFinished);
    await approve(line);
    for (const step of stepsFor(story, line.run)) if (line.run.has(step.name)) await takeStep(line, step);
    return await finish(line);
  } catch (error) {
    return CancellationScope.nonCancellable(() => stop(line, error));
  }
}

function assertOwnId(story: Story, input: RunInput): RunInput {
  const { workflowId } = workflowInfo();
  const expected = workflowIds.machineRun(input.machineId, story.kind);
  if (workflowId === expected) return input;
  throw new ControlError(
    'INVALID_INPUT',
    `machine ${input.machineId} is worked on under the workflow id ${expected} only, not ${workflowId}`,
  );
}

/** Nothing has happened yet: what refuses the plan refuses the workflow. */
async function plan({ run }: Line, { machineId, profile, actor, reason }: RunInput): Promise<void> {
  const { workflowId, firstExecutionRunId } = workflowInfo();
  try {
    run.plan = await planMachineRun.executeWithOptions({ summary: `${run.kind} of ${machineId}` }, [
      { machineId, kind: run.kind, profile: profile ?? null, workflowId, workflowRunId: firstExecutionRunId, actor, reason },
    ]);
  } catch (error) {
    const refusal = findRefusal(error);
    if (refusal === undefined) throw error;
    throw toFailure(new ControlError(refusal.code, refusal.message, { details: { reason: refusal.reason } }));
  }
}

/** Everything destructive of the run is one batch, made before anything is sent; without approvers it is approved as it is made. */
async function approve(line: Line): Promise<void> {
  const { run } = line;
  if (!run.has('approve')) return;
  const { batch } = await control.openRunBatch.executeWithOptions({ summary: `the batch of run ${run.runId}` }, [{ runId: run.runId }]);
  if (batch === null) return;
  run.batchId = batch.batchId;
  if (!batch.held) return;
  const now = Date.now();
  run.scope = new StepScope({
    step: null,
    name: 'approve',
    saying: `the approvers of batch ${batch.batchId}`,
    now,
    deadline: batch.notAfter,
  });
  enterPhase(line, 'waiting-approvals', { waitingOn: ['approvers'], deadlineMs: batch.notAfter });
  for (;;) {
    if (run.stopping !== null) throw new RunStopped(run.stopping.as === 'cancel' ? 'cancelled' : 'given-up', run.stopping.reason);
    const facts: unknown = await interruptible(line, () =>
      control.awaitDecision.executeWithOptions({ summary: `approvals of batch ${batch.batchId}` }, [
        { batchId: batch.batchId, seen: Number.MAX_SAFE_INTEGER },
      ]),
    );
    const { state, endedBecause } = isRecord(facts) ? facts : {};
    if (state === 'approved') return;
    if (state === 'expired') throw new RunStopped('approval-expired', `batch ${batch.batchId} found no approvers in its time`);
    if (state === 'cancelled') throw new RunStopped('approval-refused', `batch ${batch.batchId} was ended: ${String(endedBecause)}`);
  }
}

async function stop(line: Line, error: unknown): Promise<RunResult> {
  const { run } = line;
  const cancelled = isCancellation(error);
  if (!cancelled && !(error instanceof RunStopped)) throw error;
  if (cancelled) run.stopping ??= { as: 'cancel', actor: 'temporal', reason: 'its workflow was cancelled' };
  if (run.stopping?.as === 'cancel') Object.assign(run, { end: 'cancelled', detail: run.stopping.reason });
  else if (error instanceof RunStopped) Object.assign(run, { end: 'failed', failure: error.reason, detail: error.message });
  await goBack(line);
  const result = await finish(line);
  if (cancelled) throw error;
  return result;
}

async function finish(line: Line): Promise<RunResult> {
  const { run } = line;
  const end = run.end ?? 'done';
  run.scope = new StepScope({ step: null, name: '', saying: 'the end to be written down', now: Date.now(), deadline: null });
  enterPhase(line, 'finishing');
  const { runId, failure, detail, stopping, input, batchId } = run;
  const actor = stopping?.actor ?? input.actor;
  if (end !== 'done' && batchId !== null)
    await endBatch(batchId, { actor, reason: detail === '' ? `run ${runId} ended: ${failure}` : detail });
  const finished = await control.finishMachineRun.executeWithOptions({ summary: `run ${runId} ends: ${end}` }, [
    { runId, end, failure, detail, actor, records: run.takeUnwritten() },
  ]);
  run.end = finished.end;
  run.remains = finished.remains;
  await condition(allHandlersFinished);
  enterPhase(line, 'done');
  return run.result();
}

/** What nobody will send any more is nobody's to send. One that has ended stays as it ended. */
async function endBatch(batchId: string, { actor, reason }: { actor: string; reason: string }): Promise<void> {
  try {
    await control.cancelBatch({ batchId, actor, reason: reason.slice(0, 500), as: 'cancelled' });
  } catch (error) {
    if (findRefusal(error) === undefined) throw error;
  }
}
