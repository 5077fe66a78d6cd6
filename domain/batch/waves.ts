/**
 * In which portions an approved batch is let go, and when it stops. A decision over counts: whoever releases (the workflow, an activity)
 * asks again after everything that happens, and the answer depends on nothing else.
 *
 * A wave begins only when the one before it has ended: all of its commands are finished, its machines are back (health gate), the pause
 * has passed. A stop is final for this plan: what was released stays released, the rest is never sent.
 */
import { day } from '../time.ts';
import { maxLeaves } from './limits.ts';

export interface WavePlan {
  /** Members of one wave; or a share of the batch in percent, rounded up. Exactly one of the two. */
  readonly size?: number;
  readonly percent?: number;
  /** Failures that are tolerated in the whole batch; one more stops it. */
  readonly maxFailures: number;
  /** In one wave, at most so many machines with one value of this label (a rack, a switch). */
  readonly maxPerLabel?: { readonly label: string; readonly count: number };
  /** From the end of a wave to the next. */
  readonly pauseMs: number;
  /** A wave ends only when every machine of it is connected. */
  readonly healthGate: boolean;
}

/** Everything at once, whatever fails: the plan of a batch that names none. */
export const oneWave: WavePlan = Object.freeze({ percent: 100, maxFailures: maxLeaves, pauseMs: 0, healthGate: false });

export interface WaveProgress {
  /** Members of the batch, and how many of them are released: the members 0 to released − 1. */
  readonly total: number;
  readonly released: number;
  /** Released and not finished. */
  readonly running: number;
  readonly failed: number;
  /** Machines of released members that are not connected. */
  readonly unhealthy: number;
  /** When the last released member finished; null before. */
  readonly waveEndedAtMs: number | null;
  readonly nowMs: number;
  /** Values of the plan's label of the members from `released` on, as far as a wave reaches; '' for a machine without it. */
  readonly labelsAhead?: readonly string[];
}

export type NextWave =
  /** Members from (inclusive) to (exclusive). */
  | { readonly kind: 'release'; readonly from: number; readonly to: number }
  /** untilMs is null while it waits for machines rather than for a time. */
  | { readonly kind: 'wait'; readonly untilMs: number | null; readonly why: string }
  | { readonly kind: 'stop'; readonly why: string }
  | { readonly kind: 'done' };

export function nextWave(plan: WavePlan, progress: WaveProgress): NextWave {
  return (
    stopAfterFailures(plan, progress) ?? // 1. too many failures end it, whatever else is open
    waitForRunning(progress) ?? //          2. one wave at a time
    endOfBatch(progress) ?? //              3. nothing left
    waitForHealth(plan, progress) ?? //     4. the machines are back
    waitForPause(plan, progress) ?? //      5. the pause has passed
    releaseWave(plan, progress)
  );
}

function stopAfterFailures({ maxFailures }: WavePlan, { failed, released, total }: WaveProgress): NextWave | null {
  if (failed <= maxFailures || released === total) return null;
  return { kind: 'stop', why: `${failed} failed, ${maxFailures} tolerated: ${total - released} of ${total} are not sent` };
}

const waitForRunning = ({ running, released }: WaveProgress): NextWave | null =>
  running > 0 ? { kind: 'wait', untilMs: null, why: `${running} of ${released} released are still running` } : null;

const endOfBatch = ({ released, total }: WaveProgress): NextWave | null => (released >= total ? { kind: 'done' } : null);

function waitForHealth({ healthGate }: WavePlan, { unhealthy }: WaveProgress): NextWave | null {
  return healthGate && unhealthy > 0 ? { kind: 'wait', untilMs: null, why: `${unhealthy} machine(s) are not connected again` } : null;
}

function waitForPause({ pauseMs }: WavePlan, { released, waveEndedAtMs, nowMs }: WaveProgress): NextWave | null {
  const untilMs = (waveEndedAtMs ?? nowMs) + pauseMs;
  return released > 0 && nowMs < untilMs ? { kind: 'wait', untilMs, why: 'the pause between waves' } : null;
}

function releaseWave(plan: WavePlan, { released, total, labelsAhead }: WaveProgress): NextWave {
  const size = waveSize(plan, total);
  return { kind: 'release', from: released, to: released + Math.min(total - released, size, withinLabels(plan, labelsAhead ?? [], size)) };
}

/** Members of a full wave; at least one. */
export const waveSize = ({ size, percent }: WavePlan, total: number): number =>
  Math.max(1, size ?? Math.ceil((total * (percent ?? 100)) / 100));

/** The members that stay in order: a wave ends before the first one that would be too many of its label. Never none. */
function withinLabels({ maxPerLabel }: WavePlan, labels: readonly string[], size: number): number {
  if (maxPerLabel === undefined) return size;
  const seen = new Map<string, number>();
  for (const [index, value] of labels.entries()) {
    const count = (seen.get(value) ?? 0) + 1;
    if (value !== '' && count > maxPerLabel.count) return index;
    seen.set(value, count);
  }
  return size;
}

const isWhole = (value: unknown, least: number, most: number): boolean =>
  Number.isInteger(value) && (value as number) >= least && (value as number) <= most;

/** Everything that is wrong with a plan, each with its value; empty for a good one. */
export function problemsOfWavePlan(plan: WavePlan): readonly string[] {
  const { size, percent, maxFailures, maxPerLabel, pauseMs, healthGate } = plan;
  const rules: readonly [boolean, string][] = [
    [(size === undefined) !== (percent === undefined), 'a wave has a size or a percent, one of the two'],
    [size === undefined || isWhole(size, 1, maxLeaves), `size ${String(size)} is not a whole number from 1 to ${maxLeaves}`],
    [percent === undefined || isWhole(percent, 1, 100), `percent ${String(percent)} is not a whole number from 1 to 100`],
    [isWhole(maxFailures, 0, maxLeaves), `maxFailures ${String(maxFailures)} is not a whole number from 0 to ${maxLeaves}`],
    [isWhole(pauseMs, 0, day), `pauseMs ${String(pauseMs)} is not a whole number from 0 to ${day}`],
    [typeof healthGate === 'boolean', `healthGate ${String(healthGate)} is neither true nor false`],
    [maxPerLabel === undefined || isLabel(maxPerLabel.label), `maxPerLabel.label ${JSON.stringify(maxPerLabel?.label)} is no label`],
    [
      maxPerLabel === undefined || isWhole(maxPerLabel.count, 1, maxLeaves),
      `maxPerLabel.count ${String(maxPerLabel?.count)} is not a whole number from 1 to ${maxLeaves}`,
    ],
  ];
  return rules.flatMap(([holds, problem]) => (holds ? [] : [problem]));
}

const isLabel = (value: unknown): boolean => typeof value === 'string' && /^[\x21-\x7e]{1,128}$/.test(value);
