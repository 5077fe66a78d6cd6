/**
 * The batch activities that need no key. None believes its input: an approval is counted by the database's service against the
 * published set, and what a batch is comes from its row, whatever a workflow or a message says.
 */
import type { BatchControlPorts, BatchCounts, BatchFacts, BatchFailure, ScopeLeafFacts } from './batch-ports.ts';
import { isRefusal, translated } from './failures.ts';
import { currentWait, notYet } from './not-yet.ts';

export interface OpenedBatch {
  readonly facts: BatchFacts;
  readonly counts: BatchCounts;
  readonly leaves: readonly ScopeLeafFacts[];
}

export interface BatchEnd {
  readonly facts: BatchFacts;
  readonly counts: BatchCounts;
  readonly failures: readonly BatchFailure[];
}

export interface BatchControlActivities {
  openBatch(input: { batchId: string; leaves: number }): Promise<OpenedBatch>;
  recordApproval(input: { batchId: string; kid: string; sig: string }): Promise<BatchFacts>;
  /** Those among many that count, where somebody floods the batch with others; what is refused is passed over. */
  recordApprovals(input: { batchId: string; approvals: readonly { kid: string; sig: string }[] }): Promise<BatchFacts>;
  /** Answers when the batch is no longer pending, or when an approval is there that the caller has not seen. */
  awaitDecision(input: { batchId: string; seen: number }): Promise<BatchFacts>;
  cancelBatch(input: { batchId: string; actor: string; reason: string; as: 'cancelled' | 'rejected' }): Promise<BatchFacts>;
  awaitBatchEnd(input: { batchId: string }): Promise<BatchEnd>;
  /** One look: what expired is recorded; ids of batches that nobody watches. */
  reconcileBatches(): Promise<{ expired: number; commands: number; unwatched: string[] }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

const failuresKept = 20;
const errorKept = 300;
/** Looked at in one run of the schedule, from another place each time, so that the rest has its turn. */
const watchedPerRun = 200;

/**
 * Bytes of the leaves that a workflow is given to show, as JSON. They stand in the history of each of its runs, and a query answers them in one
 * piece: half of the 512 KiB from which the server warns of a payload, an eighth of what it takes.
 */
export const leavesBytes = 256 * 1_024;

/** As many of the first as have room. */
function fitting(leaves: readonly ScopeLeafFacts[]): readonly ScopeLeafFacts[] {
  let bytes = 0;
  const end = leaves.findIndex((leaf) => {
    bytes += Buffer.byteLength(JSON.stringify(leaf)) + 1;
    return bytes > leavesBytes;
  });
  return end === -1 ? leaves : leaves.slice(0, end);
}

export function createBatchControlActivities({ batches, workflows, now }: BatchControlPorts): BatchControlActivities {
  return translated<BatchControlActivities>({
    async openBatch({ batchId, leaves }) {
      const listed = await batches.leaves(batchId, leaves);
      return { facts: await batches.read(batchId), counts: await batches.counts(batchId), leaves: fitting(listed) };
    },

    async recordApproval({ batchId, kid, sig }) {
      await batches.recordApproval({ batchId, kid, sig });
      return batches.read(batchId);
    },

    async recordApprovals({ batchId, approvals }) {
      for (const { kid, sig } of approvals) {
        try {
          await batches.recordApproval({ batchId, kid, sig });
        } catch (error) {
          // A fault repeats them all: an approval that is recorded is recorded once.
          if (!isRefusal(error)) throw error;
        }
      }
      return batches.read(batchId);
    },

    async awaitDecision({ batchId, seen }) {
      const facts = await batches.read(batchId);
      const { state, approvals, required, notAfter } = facts;
      if (state !== 'pending' || approvals.length > seen) return facts;
      const wait = currentWait();
      const message = `${approvals.length} of ${required} approval(s) of batch ${batchId}`;
      return notYet({ reason: 'awaiting-approval', message, ...untilEnd(notAfter - now()) }, wait);
    },

    async cancelBatch(input) {
      await batches.cancel(input);
      return batches.read(input.batchId);
    },

    async awaitBatchEnd({ batchId }) {
      const [facts, counts] = [await batches.read(batchId), await batches.counts(batchId)];
      if (counts.open > 0) {
        notYet(
          { reason: 'commands-open', message: `${counts.open} of ${counts.total} command(s) of batch ${batchId} have not ended` },
          currentWait(),
        );
      }
      await batches.close(batchId);
      const failures = (await batches.failures(batchId, failuresKept)).map((failure) => ({
        ...failure,
        error: failure.error.slice(0, errorKept),
      }));
      return { facts, counts, failures };
    },

    async reconcileBatches() {
      const done = await batches.reconcile();
      const unwatched: string[] = [];
      for (const batchId of await batches.unfinished(watchedPerRun)) if (!(await workflows.isRunning(batchId))) unwatched.push(batchId);
      return { ...done, unwatched };
    },
  });
}

/** Near its end the batch is looked at when it ends, not some seconds later. */
const untilEnd = (leftMs: number): { retryAfterMs?: number } => (leftMs > 0 && leftMs < 5_000 ? { retryAfterMs: leftMs } : {});
