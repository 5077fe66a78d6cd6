/**
 * The messages of a batch's approval, and their parsers. An approver sends the same `{kid, sig}` through the api, through the
 * update `approve`, or, in hours in which no worker runs, as the signal `approveSignal`. Nothing here proves an approval: the
 * parser only turns away what cannot be one, so that it leaves no trace in the history; the database's service counts it.
 */
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import { readSigned, Shape, type Signed } from '../shared/shape.ts';

/** All it takes: everything else about the batch is in the database, where its request digest covers it. */
export interface ApproveBatchInput {
  readonly batchId: string;
}

export interface ApprovalMessage {
  /** SHA-256 of the approver's key, lower-case hex. */
  readonly kid: string;
  /** 64 bytes r‖s, base64url. */
  readonly sig: string;
}

export const phases = Object.freeze(['planning', 'waiting-approvals', 'releasing', 'watching', 'cancelling', 'recording', 'done'] as const);
export type Phase = (typeof phases)[number];

/** `stopped`: by a rule of its own waves; what was still held is cancelled, and needs a new batch with new approvals. */
export const outcomes = Object.freeze(['finished', 'stopped', 'expired', 'cancelled', 'rejected'] as const);
export type Outcome = (typeof outcomes)[number];

export interface BatchStatus {
  readonly batchId: string;
  readonly phase: Phase;
  readonly since: number;
  /** As the database last said; null before it was asked. */
  readonly state: string | null;
  readonly reason: string;
  readonly root: string;
  readonly size: number;
  readonly required: number;
  readonly approvals: readonly { readonly kid: string; readonly at: number }[];
  readonly notAfter: number | null;
  readonly proposedBy: string;
  readonly released: number;
  readonly finished: number;
  readonly failed: number;
  /** What the next wave waits for; empty while it waits for nothing. */
  readonly waitsFor: string;
  readonly outcome: Outcome | null;
}

export interface BatchResult {
  readonly batchId: string;
  readonly outcome: Outcome;
  readonly approvedBy: readonly string[];
  readonly released: number;
  readonly states: Readonly<Record<string, number>>;
  readonly failures: readonly { readonly nodeId: string; readonly commandId: string; readonly state: string; readonly error: string }[];
}

export interface ScopeLeafShown {
  readonly index: number;
  readonly subject: string;
  readonly kind: string;
  /** Hex; empty: any payload. */
  readonly payloadSha256: string;
}

export interface ScopePage {
  readonly leaves: readonly ScopeLeafShown[];
  /** null: nothing follows that the workflow knows; the rest is read with the command in `more`. */
  readonly next: number | null;
  readonly size: number;
  readonly more: string;
}

export interface ScopePageRequest {
  readonly after?: number;
  readonly limit?: number;
}

export const status = defineQuery<BatchStatus>('status');
export const scopePage = defineQuery<ScopePage, [ScopePageRequest?]>('scopePage');
export const approve = defineUpdate<BatchStatus, [ApprovalMessage]>('approve');
export const approveSignal = defineSignal<[ApprovalMessage]>('approveSignal');
export const reject = defineSignal<[Signed]>('reject');
export const cancel = defineSignal<[Signed]>('cancel');
/** Says that something changed in the database; a lost one costs the time until the next look. */
export const approvalRecorded = defineSignal('approvalRecorded');

export const staticSummary = 'Hold a batch of destructive commands until it is approved, then release it in waves';

/**
 * Leaves that the workflow keeps for `scopePage`, at most: the activity that reads them ends earlier, at 256 KiB. A page of the api (5,000
 * leaves, 8 MiB with their payloads) is more than a payload of Temporal may be; the whole scope is there.
 */
export const leavesKept = 2_000;
export const longestBatchId = 128;

/** It stands in lines that people copy into a shell: nothing that a shell reads, and no flag. */
const idShape = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
const kidShape = /^[0-9a-f]{64}$/;
/** 64 bytes make 86 characters; the last carries two bits, so only A, Q, g and w can stand there. */
const sigShape = /^[A-Za-z0-9_-]{85}[AQgw]$/;
const approvalFields = ['kid', 'sig', 'batchId', 'root', 'size', 'notAfterMs', 'trustDomain'];

/**
 * The file that `better-compute batch sign` writes says which batch it is for; a field that names another is refused here.
 *
 * @throws ControlError INVALID_INPUT
 */
export function parseApproval(value: unknown, batchId: string): ApprovalMessage {
  const shape = new Shape('approve', value, approvalFields);
  const kid = shape.text('kid', 64);
  if (kid !== '' && !kidShape.test(kid)) shape.problem('kid must be 64 lower-case hex digits');
  const sig = shape.text('sig', 128);
  if (sig !== '' && !sigShape.test(sig)) shape.problem('sig must be 64 bytes as base64url (86 characters)');
  if (shape.has('batchId') && shape.get('batchId') !== batchId) shape.problem(`it was made for another batch than ${batchId}`);
  shape.done();
  return { kid, sig };
}

/** @throws ControlError INVALID_INPUT */
export function parseBatchWords(what: 'cancel' | 'reject', value: unknown): Signed {
  const shape = new Shape(what, value, ['actor', 'reason']);
  const message = readSigned(shape);
  shape.done();
  return message;
}

/** @throws ControlError INVALID_INPUT */
export function parseApproveBatch(value: unknown): ApproveBatchInput {
  const shape = new Shape('approveBatch', value, ['batchId']);
  const message = { batchId: shape.text('batchId', longestBatchId) };
  if (message.batchId !== '' && !idShape.test(message.batchId)) shape.problem('batchId must be letters, digits, ".", "_" and "-"');
  shape.done();
  return message;
}

/** A query that does not fit answers its first page: a reader is not worth an error. */
export function pageOf(
  leaves: readonly ScopeLeafShown[],
  size: number,
  { batchId, request }: { batchId: string; request: unknown },
): ScopePage {
  const { after, limit } = (typeof request === 'object' && request !== null ? request : {}) as { after?: unknown; limit?: unknown };
  const from = typeof after === 'number' && Number.isInteger(after) && after >= 0 ? after + 1 : 0;
  const count = typeof limit === 'number' && Number.isInteger(limit) && limit > 0 ? Math.min(limit, leavesKept) : leavesKept;
  const page = leaves.slice(from, from + count);
  const last = page.at(-1)?.index;
  return {
    leaves: page,
    next: last === undefined || last >= leaves.length - 1 ? null : last,
    size,
    more: `better-compute batch show ${batchId}`,
  };
}
