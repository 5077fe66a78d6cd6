/**
 * Releases an approved batch, wave by wave, and signs its evidence. What the next wave is, is asked of the database each time: neither
 * the workflow's input nor a heartbeat says how far to go, because whoever may write to the namespace can write both.
 */
import { heartbeat } from '@temporalio/activity';
import type { BatchCounts, BatchSigningPorts } from './batch-ports.ts';
import { translated } from './failures.ts';
import { currentWait, nextDelayMs, notYet } from './not-yet.ts';

export type WaveReport =
  | { readonly kind: 'not-approved' }
  | { readonly kind: 'released'; readonly counts: BatchCounts }
  /** The caller's patience is used up: what the next wave waits for. */
  | { readonly kind: 'waiting'; readonly why: string; readonly untilMs: number | null; readonly counts: BatchCounts }
  | { readonly kind: 'stopped'; readonly why: string; readonly counts: BatchCounts }
  | { readonly kind: 'done'; readonly counts: BatchCounts };

export interface BatchSigningActivities {
  releaseWave(input: { batchId: string; patienceMs: number | null }): Promise<WaveReport>;
  recordBatchEvidence(input: { batchId: string }): Promise<void>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

/** Released between two heartbeats; the service signs one page of it while the database takes another. */
export const rangeSize = 2_000;

export function createBatchSigningActivities(ports: BatchSigningPorts): BatchSigningActivities {
  const { batches, release, evidence } = ports;
  const counts = (batchId: string): Promise<BatchCounts> => batches.counts(batchId);
  return translated<BatchSigningActivities>({
    async releaseWave({ batchId, patienceMs }) {
      const next = await release.next(batchId);
      switch (next.kind) {
        case 'not-approved':
          return next;
        case 'release':
          await releaseUpTo(ports, { batchId, from: next.from, to: next.to });
          return { kind: 'released', counts: await counts(batchId) };
        case 'wait':
          return waiting(ports, { batchId, patienceMs, why: next.why, untilMs: next.untilMs });
        case 'stop':
          await batches.cancel({ batchId, actor: 'the stop rule of its waves', reason: next.why, as: 'cancelled' });
          return { kind: 'stopped', why: next.why, counts: await counts(batchId) };
        case 'done':
          return { kind: 'done', counts: await counts(batchId) };
      }
    },

    recordBatchEvidence: ({ batchId }) => evidence.write(batchId),
  });
}

/**
 * A repeated attempt asks again what is next: what went out is not held any more. A wave that was cut short is then followed by a
 * smaller one, once its part has ended; never by more than the plan allows.
 */
async function releaseUpTo(
  { release }: BatchSigningPorts,
  { batchId, from, to }: { batchId: string; from: number; to: number },
): Promise<void> {
  for (let at = from; at < to; at += rangeSize) {
    await release.release({ batchId, from: at, to: Math.min(at + rangeSize, to) });
    heartbeat({ at: Math.min(at + rangeSize, to) });
  }
}

async function waiting(
  { batches, now }: BatchSigningPorts,
  { batchId, patienceMs, why, untilMs }: { batchId: string; patienceMs: number | null; why: string; untilMs: number | null },
): Promise<WaveReport> {
  const wait = currentWait();
  const patience = patienceMs === null ? Number.POSITIVE_INFINITY : patienceMs - wait.elapsedMs;
  if (patience <= 0) return { kind: 'waiting', why, untilMs, counts: await batches.counts(batchId) };
  const pause = untilMs === null ? 0 : untilMs - now();
  const retryAfterMs = Math.min(patience, pause > 0 ? pause : nextDelayMs(wait));
  return notYet({ reason: 'wave-waits', message: `the next wave of batch ${batchId} waits: ${why}`, retryAfterMs }, wait);
}
