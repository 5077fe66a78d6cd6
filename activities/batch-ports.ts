/** What the batch activities need from the outside: the stored batches, their commands, the workflows that watch them. */
import type { BatchState } from '../domain/batch/states.ts';
import type { NextWave } from '../domain/batch/waves.ts';
import type { Clock } from './rotation-ports.ts';

/** A batch as the database has it now; a pending one past its end reads as expired (BAT-058). */
export interface BatchFacts {
  readonly batchId: string;
  readonly state: BatchState;
  /** How a cancelled one ended; empty for any other. */
  readonly endedBecause: string;
  readonly reason: string;
  /** Hex. */
  readonly root: string;
  readonly size: number;
  readonly required: number;
  /** Verified and distinct. */
  readonly approvals: readonly { readonly kid: string; readonly at: number }[];
  readonly notAfter: number;
  readonly createdBy: string;
  /** The agent that proposed it; empty for a person. */
  readonly proposedBy: string;
}

export interface ScopeLeafFacts {
  readonly index: number;
  readonly subject: string;
  readonly kind: string;
  readonly payloadSha256: string;
}

export interface BatchCounts {
  /** Commands of the batch, held ones among them. */
  readonly total: number;
  readonly held: number;
  /** Released and not ended. */
  readonly open: number;
  readonly states: Readonly<Record<string, number>>;
}

export interface BatchFailure {
  readonly nodeId: string;
  readonly commandId: string;
  readonly state: string;
  readonly error: string;
}

export interface BatchesPort {
  /** @throws NOT_FOUND */
  read(batchId: string): Promise<BatchFacts>;
  leaves(batchId: string, limit: number): Promise<readonly ScopeLeafFacts[]>;
  /** The full check, against the published set. @throws what it refuses, with the state it leaves unchanged */
  recordApproval(input: { batchId: string; kid: string; sig: string }): Promise<void>;
  /** Ends it and cancels its held commands; one that has ended stays as it ended. */
  cancel(input: { batchId: string; actor: string; reason: string; as: 'cancelled' | 'rejected' }): Promise<void>;
  counts(batchId: string): Promise<BatchCounts>;
  failures(batchId: string, limit: number): Promise<readonly BatchFailure[]>;
  /** Records expiry and cancels what is held of what has ended (BAT-059, BAT-060). */
  reconcile(): Promise<{ readonly expired: number; readonly commands: number }>;
  /** Every command has ended: reconcilers look at it no more. */
  close(batchId: string): Promise<void>;
  /** Pending, or approved with commands that have not ended: somebody has to watch them. */
  unfinished(limit: number): Promise<readonly string[]>;
}

export interface BatchControlPorts extends Clock {
  readonly batches: BatchesPort;
  readonly workflows: { isRunning(batchId: string): Promise<boolean> };
}

/** What comes next by the stored plan and what the commands have become. */
export type WaveStep = NextWave | { readonly kind: 'not-approved' };

export interface BatchReleasePort {
  next(batchId: string): Promise<WaveStep>;
  /**
   * Signs and releases the members from `from` to before `to`; those that are no longer held stay as they are. Judges by itself that
   * the batch is approved by the published set.
   */
  release(input: { batchId: string; from: number; to: number }): Promise<{ readonly released: number }>;
}

export interface BatchSigningPorts extends Clock {
  readonly release: BatchReleasePort;
  /** Ends a batch whose own rule stops it. */
  readonly batches: Pick<BatchesPort, 'read' | 'counts' | 'cancel'>;
  readonly evidence: { write(batchId: string): Promise<void> };
}
