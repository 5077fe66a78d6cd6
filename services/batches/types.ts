/**
 * Batches of destructive work (BAT, QUO): created whole, held until k approvers have signed, released in ranges.
 *
 * Invariants
 *   - Scope, root, size and proofs are written once; no statement changes them (BAT-004).
 *   - Nothing of a held command is signed: key, sequence, issue time and deadline are those of its release.
 *   - An approval is counted against the published set and this process's own trust domain, never against keys a caller brings.
 *   - Every step may be repeated, by any process, in any order: what is done already changes nothing.
 *
 * Threat model: whoever writes these tables, the workflow that drives them, or the api, can hold work back, show approvers something
 * else, or send early; the machine runs only what k approvers signed and only once a leaf. The checks here spare honest callers a
 * refusal a day later; none of them is what keeps a machine safe.
 *
 * What it does not do: wait, pace waves (the workflow), sign for an approver, or judge a machine's verdict.
 */
import type { BatchState } from '../../domain/batch/states.ts';
import type { CommandState } from '../../domain/commands/states.ts';

/** As a caller gives it. */
export interface LeafInput {
  readonly subject: string;
  readonly kind: string;
  /** 32 bytes; absent with `payload` it is derived, without it the leaf admits any payload (QUO-013, QUO-019). */
  readonly payloadSha256?: Uint8Array;
  readonly payload?: LeafPayload;
}

export interface LeafPayload {
  readonly typeUrl: string;
  readonly value: Uint8Array;
}

export interface BatchApprovalView {
  readonly kid: string;
  readonly at: number;
}

export interface BatchView {
  readonly id: string;
  readonly tenantId: string;
  /** A batch past its end reads as expired before that is recorded (BAT-058). */
  readonly state: BatchState;
  readonly reason: string;
  /** 32 bytes. */
  readonly root: Uint8Array;
  readonly size: number;
  readonly notAfterMs: number;
  readonly trustDomain: string;
  /** By the set that was published when it was created; while it is pending also by the one that is published now, whichever is more. */
  readonly required: number;
  readonly createdBy: string;
  readonly createdAt: number;
  readonly createdByAgent: string | null;
  readonly delegationId: string | null;
  /** While it is pending: those of the approvers who are published now. */
  readonly approvals: readonly BatchApprovalView[];
  readonly approvedAt: number | null;
  readonly closedAt: number | null;
  readonly closedBy: string;
  readonly closeReason: string;
  /** As given at creation (domain/batch/waves.ts judges it); null: all at once. */
  readonly waves: unknown;
  /** Commands in it. */
  readonly members: number;
}

/** Counts of members; what domain/batch/waves.ts decides by. */
export interface BatchProgress {
  readonly members: number;
  /** Waiting for their release. */
  readonly held: number;
  /** Released and not ended. */
  readonly running: number;
  /** Failed, expired, rejected or interrupted. */
  readonly failed: number;
  /** Released, and their machine is not connected. */
  readonly unhealthy: number;
  /** When the last one ended; null before. */
  readonly lastEndedAt: number | null;
  readonly states: Readonly<Partial<Record<CommandState, number>>>;
  /** None is held and none runs. */
  readonly isDone: boolean;
}

export interface LabelProgress extends BatchProgress {
  /** Value of the label; empty for machines without it. */
  readonly label: string;
}

export interface ScopePage {
  readonly leaves: readonly ScopePageLeaf[];
  /** Where the next page begins; null: this was the last. */
  readonly next: number | null;
}

export interface ScopePageLeaf {
  readonly index: number;
  readonly subject: string;
  readonly kind: string;
  /** Empty: any payload. */
  readonly payloadSha256: Uint8Array;
  readonly payload: LeafPayload | null;
}

export interface CreatedBatch {
  readonly batchId: string;
  /** Its commands wait for approvals. */
  readonly held: boolean;
  readonly required: number;
  readonly size: number;
  readonly root: Uint8Array;
  /** false: the same request was made before. */
  readonly created: boolean;
}

export interface RecordedApproval {
  readonly kind: 'recorded' | 'already';
  readonly kid: string;
  /** Distinct approvers of the published set. */
  readonly have: number;
  readonly required: number;
  /** It is approved: its commands may be released. */
  readonly released: boolean;
}

export interface ReleasedRange {
  /** Moved into their logs by this call. */
  readonly released: number;
  /** Of the range, released or ended before. */
  readonly existing: number;
}
