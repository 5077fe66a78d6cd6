/** How a run takes one step of its table: act, see, a second chance, a hold; cut short by an operator's word at any point. */
import { condition, proxyActivities, sleep } from '@temporalio/workflow';
import type { MetalControlActivities, Observed } from '../../activities/metal-control.ts';
import type { MetalSigningActivities } from '../../activities/metal-signing.ts';
import { hour, minute, second } from '../../domain/time.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { findRefusal } from '../shared/failures.ts';
import { bad, look, type StepOutcome, sendAll } from './commands.ts';
import { enterPhase, enterStep, interruptible, type Line, RunStopped, show } from './line.ts';
import type { SecondChance, StoryStep } from './table.ts';

const { changeMachine } = proxyActivities<MetalControlActivities>(onControl);
const { changeCredential } = proxyActivities<MetalSigningActivities>(onSigning);

/** How long a failed step is held for an operator, who may have checked: then the run has failed, and says of what. */
export const heldForMs = hour;

/** No word helps against these. */
const final: ReadonlySet<string> = new Set(['quarantined', 'run-ended']);

/** @throws RunStopped when the run does not go on behind it */
export async function takeStep(line: Line, step: StoryStep): Promise<void> {
  assertGoesOn(line);
  enterStep(line, step);
  let again = false;
  for (;;) {
    const outcome = await interruptible(line, () => work(line, step, again));
    assertGoesOn(line);
    if (outcome === null && step.onOverride === 'wait-again') {
      again = true;
      startAnew(line, step);
      continue;
    }
    if (outcome?.ok === true) return done(line, outcome.detail);
    if (outcome === null && isAssumed(line)) return;
    if (outcome !== null) await fail(line, step, outcome);
    if (isAssumed(line)) return;
  }
}

function assertGoesOn({ run }: Line): void {
  if (run.stopping !== null) throw new RunStopped(run.stopping.as === 'cancel' ? 'cancelled' : 'given-up', run.stopping.reason);
}

function done({ run }: Line, detail: string): void {
  run.note(run.scope.name, 'done', { detail, now: Date.now() });
}

/** An operator has checked, and answers for it by name. */
function isAssumed({ run }: Line): boolean {
  const { overridden, step } = run.scope;
  if (overridden === null || step?.onOverride !== 'assume') return false;
  run.note(run.scope.name, 'done', {
    detail: `checked by ${overridden.actor}: ${overridden.reason}`,
    by: overridden.actor,
    now: Date.now(),
  });
  run.scope.held = null;
  return true;
}

function startAnew(line: Line, step: StoryStep): void {
  const { run } = line;
  const { overridden } = run.scope;
  enterStep(line, step);
  const by = overridden?.actor ?? 'control-plane';
  run.scope.attempt = 1 + Math.max(0, ...run.shown.filter((row) => row.step === step.name).map((row) => row.attempt));
  run.note(step.name, 'started', { detail: `waits again: ${overridden?.reason ?? ''}`, by, now: Date.now() });
}

async function fail(line: Line, step: StoryStep, { reason, detail }: Extract<StepOutcome, { ok: false }>): Promise<void> {
  const { run } = line;
  run.note(run.scope.name, 'failed', { detail: `${reason}: ${detail}`, now: Date.now() });
  if (step.onFailure === 'fail' || final.has(reason)) throw new RunStopped(reason, detail);
  run.scope.held = { reason, detail };
  run.scope.saying = `an operator: ${step.name} failed (${reason}): ${detail}`;
  run.scope.deadline = Date.now() + heldForMs;
  const { phase } = run;
  enterPhase(line, 'held', { waitingOn: ['operator', ...step.waitsFor(run)], deadlineMs: run.scope.deadline });
  const decided = await condition(() => run.stopping !== null || run.scope.overridden !== null, heldForMs, {
    summary: `${step.name} is held for an operator`,
  });
  assertGoesOn(line);
  if (!decided) throw new RunStopped(reason, detail);
  enterPhase(line, phase);
}

async function work(line: Line, step: StoryStep, again: boolean): Promise<StepOutcome> {
  const { run } = line;
  if (step.repeats === true) return untilReached(line, step);
  if (!again) {
    const sent = await sendAll(line, step.acts?.(run) ?? []);
    if (!sent.ok) return sent;
  }
  if (step.change !== undefined) return change(line, step.change);
  if (step.observe === undefined) return { ok: true, detail: '' };
  const first = await look(line, step.observe, patienceOf(line, step));
  if (!mayTryAgain(first) || step.secondChance === undefined || again) return outcomeOf(line, step, first);
  return secondChance(line, step, { chance: step.secondChance, first });
}

/** Not more often than this, however long its time is: each is a handful of events. */
const mostRepeats = 40;
const leastPauseMs = 30 * second;

/** Such as a service that comes up: asked until it says what is waited for, or the step's time is over. */
async function untilReached(line: Line, step: StoryStep): Promise<StepOutcome> {
  const { run } = line;
  const { deadline, since } = run.scope;
  const untilMs = deadline ?? since + hour;
  const pauseMs = Math.max(leastPauseMs, Math.ceil((untilMs - since) / mostRepeats));
  for (;;) {
    const sent = await sendAll(line, step.acts?.(run) ?? []);
    const outcome = sent.ok && step.observe !== undefined ? await outcomeOf(line, step, await look(line, step.observe, minute)) : sent;
    if (outcome.ok || final.has(outcome.reason) || Date.now() + pauseMs > untilMs) return outcome;
    run.note(step.name, 'failed', { detail: `${outcome.reason}: ${outcome.detail}`, now: Date.now() });
    await sleep(pauseMs, { summary: `before ${step.name} looks again` });
    run.scope.attempt += 1;
    run.note(step.name, 'started', { now: Date.now() });
    show(line);
  }
}

/** What is late, and a start that failed at once, may go another way. */
const mayTryAgain = (seen: Observed): boolean => seen.kind === 'late' || (seen.kind === 'failed' && seen.reason === 'start-failed');

const patienceOf = ({ run }: Line, step: StoryStep): number =>
  step.patienceMs?.(run) ?? Math.max(minute, (run.scope.deadline ?? Date.now() + hour) - Date.now());

async function secondChance(
  line: Line,
  step: StoryStep,
  { chance, first }: { chance: SecondChance; first: Observed },
): Promise<StepOutcome> {
  const { run } = line;
  const why = await explain(line, step, first);
  run.note(step.name, 'failed', { detail: `${why.reason}: ${why.detail}`, now: Date.now() });
  run.scope.attempt += 1;
  run.reboots += 1;
  run.scope.saying = chance.saying;
  run.note(step.name, 'started', { now: Date.now() });
  show(line);
  const sent = await sendAll(line, chance.acts(run));
  if (!sent.ok) return sent;
  return outcomeOf(line, step, await look(line, step.observe as NonNullable<StoryStep['observe']>, patienceOf(line, step)));
}

async function outcomeOf(line: Line, step: StoryStep, seen: Observed): Promise<StepOutcome> {
  if (seen.kind === 'reached') return { ok: true, detail: seen.detail };
  return explain(line, step, seen);
}

/** Which path the machine went (M27), where somebody can tell. */
async function explain(line: Line, step: StoryStep, seen: Observed): Promise<Extract<StepOutcome, { ok: false }>> {
  const late = step.lateReason ?? `${step.name}-late`;
  const plain =
    seen.kind === 'failed'
      ? { ok: false as const, reason: seen.reason, detail: seen.detail }
      : { ok: false as const, reason: late, detail: seen.detail };
  const explaining = step.secondChance?.explain;
  if (explaining === undefined || seen.kind !== 'late') return plain;
  await sendAll(line, explaining.acts);
  const told = await look(line, explaining.observe, minute);
  return told.kind === 'failed' ? { ok: false, reason: told.reason, detail: told.detail } : plain;
}

async function change({ run }: Line, what: NonNullable<StoryStep['change']>): Promise<StepOutcome> {
  try {
    const options = { summary: `${what} of ${run.input.machineId}` };
    const input = { runId: run.runId, records: run.takeUnwritten() };
    const { detail } =
      what === 'store-next' || what === 'adopt'
        ? await changeCredential.executeWithOptions(options, [{ ...input, change: what }])
        : await changeMachine.executeWithOptions(options, [{ ...input, change: what }]);
    return { ok: true, detail };
  } catch (error) {
    const refusal = findRefusal(error);
    if (refusal === undefined) throw error;
    return bad(refusal.reason === '' ? 'refused' : refusal.reason, refusal.message);
  }
}
