/** Sending one command of a run until it has an end that counts, and looking at what came of it. */
import { isCancellation, proxyActivities, sleep, workflowInfo } from '@temporalio/workflow';
import type { MetalControlActivities, Observed } from '../../activities/metal-control.ts';
import type { ObservationName } from '../../activities/metal-observations.ts';
import type { ProofName } from '../../activities/metal-proofs.ts';
import type { ActEnd, MetalSigningActivities } from '../../activities/metal-signing.ts';
import { actCommandId, actOf, runPrefix } from '../../domain/metal/acts.ts';
import { cleanUps } from '../../domain/metal/boot-answers.ts';
import { second } from '../../domain/time.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { findRefusal } from '../shared/failures.ts';
import { clip, isRecord } from '../shared/shape.ts';
import { type Line, show } from './line.ts';
import type { PlannedAct } from './table.ts';

const { observeMachine } = proxyActivities<MetalControlActivities>(onControl);
const { proveMachine } = proxyActivities<MetalSigningActivities>(onSigning);
/** The relay heartbeats while whoever has the command is connected; a silent one costs the next attempt, which looks. */
const { actOnMachine } = proxyActivities<MetalSigningActivities>({
  ...onSigning,
  startToCloseTimeout: '5 minutes',
  heartbeatTimeout: '1 minute',
});

export type StepOutcome =
  | { readonly ok: true; readonly detail: string }
  | { readonly ok: false; readonly reason: string; readonly detail: string };

const good = (detail = ''): StepOutcome => ({ ok: true, detail });
export const bad = (reason: string, detail: string): StepOutcome => ({ ok: false, reason, detail });

/** Between two attempts of one action; the handlers themselves wait out short outages (M1). */
const pauseMs = (attempt: number): number => attempt * 20 * second;
/** How long a command may lack what it needs, such as a site agent that is connected. */
const patienceMs = 600 * second;
const leastMs = 60 * second;

export async function sendAll(line: Line, planned: readonly PlannedAct[]): Promise<StepOutcome> {
  for (const act of planned) {
    const outcome = await send(line, act);
    if (!outcome.ok) return outcome;
  }
  return good();
}

/** One attempt and no other: for what is not waited for. */
export async function sendOnce(line: Line, { act, ordinal }: PlannedAct): Promise<StepOutcome> {
  const end = await oneAttempt(line, { act, ordinal, first: (line.run.sent[act] ?? 0) + 1 });
  return end.state === 'done' || end.state === 'sent' ? good() : failedAs(act, end);
}

/** One action, as often as its row allows: by another agent where the one that has it went silent. */
async function send(line: Line, { act, ordinal }: PlannedAct): Promise<StepOutcome> {
  const { run } = line;
  const first = (run.sent[act] ?? 0) + 1;
  for (let tried = 1; ; tried += 1) {
    const end = await oneAttempt(line, { act, ordinal, first });
    if (end.state === 'done' || end.state === 'sent') return good();
    const failure = failedAs(act, end);
    if (tried >= actOf(act).tries || hopeless.has(end.state)) return failure;
    run.note(run.scope.name, 'failed', { detail: failure.detail, now: Date.now() });
    run.scope.attempt += 1;
    // Who is silent is not waited for: another one is asked.
    if (end.state !== 'silent') await sleep(pauseMs(tried), { summary: `before ${act} is tried again` });
    run.note(run.scope.name, 'started', { now: Date.now() });
  }
}

const failedAs = (act: PlannedAct['act'], end: ActEnd): StepOutcome =>
  bad(end.reason ?? `${act}-${end.state}`, `${act}: ${end.error === '' ? end.state : end.error}`);

/** Another attempt would meet the same. */
const hopeless: ReadonlySet<string> = new Set(['unsent', 'late']);
/** It may still be under way. */
const unended: ReadonlySet<string> = new Set(['late', 'silent']);

async function oneAttempt(line: Line, { act, ordinal, first }: PlannedAct & { readonly first: number }): Promise<ActEnd> {
  const { run } = line;
  const n = run.count(act);
  const commandId = actCommandId(runPrefix(workflowInfo().workflowId, run.runId), act, n);
  run.inFlight = { act, n };
  if (act === 'clean-up' && ordinal === cleanUps.letsGo) run.letGo = true;
  const end = await call(line, { commandId, input: { runId: run.runId, act, n, first, ordinal, patienceMs } });
  if (!unended.has(end.state)) run.inFlight = null;
  if (end.state === 'unsent') run.begun.delete(act);
  if (act === 'clean-up' && ordinal !== cleanUps.letsGo && end.state === 'done') run.letGo = false;
  run.scope.last = { commandId, state: end.state, message: end.error, at: Date.now() };
  show(line);
  return end;
}

interface Attempt {
  readonly commandId: string;
  readonly input: Omit<Parameters<MetalSigningActivities['actOnMachine']>[0], 'records'>;
}

async function call(line: Line, { commandId, input }: Attempt): Promise<ActEnd> {
  const { run } = line;
  const leftMs = Math.max(leastMs, (run.scope.deadline ?? Number.POSITIVE_INFINITY) - Date.now());
  const options = {
    activityId: commandId,
    summary: `${input.act} of ${run.input.machineId}`,
    ...(Number.isFinite(leftMs) ? { scheduleToCloseTimeout: leftMs } : {}),
  };
  try {
    return readEnd(await actOnMachine.executeWithOptions(options, [{ ...input, records: run.takeUnwritten() }]));
  } catch (error) {
    const refusal = findRefusal(error);
    if (refusal === undefined || isCancellation(error)) throw error;
    if (refusal.code === 'UNAVAILABLE')
      return { state: 'late', error: `no end of it within the time of the step`, reason: `${input.act}-late` };
    return { state: 'unsent', error: refusal.message, reason: refusal.reason === '' ? 'refused' : refusal.reason };
  }
}

/** Anyone with write access may complete an activity by hand. What follows is decided by what is observed, never by this. */
function readEnd(value: unknown): ActEnd {
  const { state, error, reason } = isRecord(value) ? value : {};
  if (typeof state !== 'string') return { state: 'unknown', error: 'it was completed by hand without an end' };
  return {
    state: clip(state),
    error: typeof error === 'string' ? clip(error, 600) : '',
    ...(typeof reason === 'string' ? { reason: clip(reason, 60) } : {}),
  };
}

const isProof = (what: ObservationName | ProofName): what is ProofName => what === 'wiped' || what === 'deployed';

/** @param forMs from the first look on */
export async function look(line: Line, what: ObservationName | ProofName, forMs: number): Promise<Observed> {
  const { ordinal } = line.run.scope.step ?? {};
  const { run } = line;
  const options = { summary: `${run.scope.saying} (${run.input.machineId})` };
  const input = { runId: run.runId, sent: { ...run.sent }, records: run.takeUnwritten(), patienceMs: forMs };
  const seen: unknown = isProof(what)
    ? await proveMachine.executeWithOptions(options, [{ ...input, what }])
    : await observeMachine.executeWithOptions(options, [{ ...input, what, ...(ordinal === undefined ? {} : { ordinal }) }]);
  const { kind, detail, reason } = isRecord(seen) ? seen : {};
  const text = typeof detail === 'string' ? clip(detail, 600) : '';
  if (kind === 'reached' || kind === 'late') return { kind, detail: text };
  if (kind === 'failed') return { kind, detail: text, reason: typeof reason === 'string' ? clip(reason, 60) : 'failed' };
  return { kind: 'failed', reason: 'no-observation', detail: 'the observation was completed by hand without a sight' };
}
