/** Creating a batch: judged whole, stored whole, never changed after (BAT-003 to BAT-009, BAT-040 to BAT-048). */
import { createHash, randomBytes } from 'node:crypto';
import { batchWindow, judgeReason } from '../../domain/batch/limits.ts';
import { firstBatchState } from '../../domain/batch/states.ts';
import { problemsOfWavePlan, type WavePlan } from '../../domain/batch/waves.ts';
import { ControlError } from '../../domain/errors.ts';
import { hour, minute, second } from '../../domain/time.ts';
import type { Executor } from '../../drizzle/client.ts';
import { findBatches, insertBatch, insertLeaves, type NewLeaf, type StoredBatch } from '../../drizzle/queries/batches.ts';
import { type CanonicalValue, canonicalJson } from '../../pki/audit/canonical-json.ts';
import { createScope, encodeProof, requiredApprovals, type Scope } from '../../pki/quorum/index.ts';
import type { QuorumFields } from '../../pki/trust/index.ts';
import { appendAudit } from '../audit.ts';
import { assertTenant, assertTenantOwns } from '../tenants.ts';
import { encodeApproval } from './approval-bytes.ts';
import { type JudgedLeaf, judgeLeaves } from './leaves.ts';
import type { CreatedBatch, LeafInput } from './types.ts';

export interface CreateBatchRequest {
  readonly tenantId: string;
  readonly scope: readonly LeafInput[];
  /** For the people who approve; up to 500 characters. */
  readonly reason: string;
  /** Server time of its end; absent: `windowMs` from now. */
  readonly notAfterMs?: number | undefined;
  /** Default 24 h. */
  readonly windowMs?: number | undefined;
  readonly createdBy: string;
  /** An agent that acts for `createdBy`, and by which delegation (BAT-052). */
  readonly createdByAgent?: string | null | undefined;
  readonly delegationId?: string | null | undefined;
  /** The same key of the same caller in the same tenant is the same batch; absent: a new one. */
  readonly idempotencyKey?: string | undefined;
  readonly waves?: WavePlan | null | undefined;
}

export interface CreateBatchContext {
  readonly now: number;
  /** The published set (services/published-quorum.ts). */
  readonly quorum: QuorumFields;
  readonly trustDomain: string;
  /** `request`: a caller from outside, 60 s to 72 h and no leaf twice; `module` (default): our own, up to 720 h (A-PKI-28). */
  readonly origin?: 'request' | 'module';
}

const insertPage = 5_000;

/**
 * Creates a batch in the caller's transaction: rolled back, it leaves nothing.
 *
 * @throws INVALID_INPUT naming the leaf or the field; NOT_FOUND for a tenant or machine that is not there, or is another tenant's;
 *   CONFLICT when the idempotency key was used for another request
 */
export async function createCommandBatch(tx: Executor, request: CreateBatchRequest, context: CreateBatchContext): Promise<CreatedBatch> {
  const isRequest = context.origin === 'request';
  assertTexts(request);
  const windowMs = windowOf(request, context);
  const leaves = judgeLeaves(request.scope, isRequest ? 'refuse' : 'collapse');
  const id = batchIdOf(request);
  const scope = createScope(id, leaves);
  const requestDigest = digestOf(request, scope);
  await assertTenant(tx, request.tenantId);
  const [before] = await findBatches(tx, [id]);
  if (before !== undefined) return repeated(before, requestDigest, request);
  await assertTenantOwns(tx, request.tenantId, new Set(leaves.map(({ machine }) => machine)));
  const required = requiredApprovals(context.quorum, scope.size);
  const notAfterMs = Math.floor(context.now + windowMs);
  const facts = { batchId: id, root: scope.root, size: scope.size, notAfterMs, trustDomain: context.trustDomain };
  const isNew = await insertBatch(tx, {
    ...request,
    id,
    root: scope.root,
    size: scope.size,
    required,
    notAfterMs,
    requestDigest,
    now: context.now,
    trustDomain: context.trustDomain,
    state: firstBatchState(required),
    createdByAgent: request.createdByAgent ?? null,
    delegationId: request.delegationId ?? null,
    waves: request.waves ?? null,
    approval: required === 0 ? encodeApproval(facts, []) : null,
    idempotencyKey: request.idempotencyKey ?? '',
  });
  // Two calls at once: the insert waited for the other one's commit.
  if (!isNew) return repeated((await findBatches(tx, [id]))[0] as StoredBatch, requestDigest, request);
  await storeScope(tx, scope, leaves);
  await announce(tx, request, { id, scope, required, notAfterMs, now: context.now });
  return { batchId: id, held: required > 0, required, size: scope.size, root: scope.root, created: true };
}

const bad = (reason: string, message: string): ControlError<'INVALID_INPUT'> =>
  new ControlError('INVALID_INPUT', message, { details: { reason } });

function assertTexts({ reason, waves, idempotencyKey }: CreateBatchRequest): void {
  const problem = judgeReason(reason);
  if (problem !== null) throw bad(problem.reason, problem.message);
  const problems = waves === undefined || waves === null ? [] : problemsOfWavePlan(waves);
  if (problems.length > 0) throw bad('bad-waves', `the waves do not fit: ${problems.join('; ')}`);
  if (idempotencyKey !== undefined && !/^[\x21-\x7e]{1,128}$/.test(idempotencyKey))
    throw bad('idempotency-key', 'the idempotency key is not 1 to 128 printable ASCII characters without a space');
}

function windowOf({ notAfterMs, windowMs }: CreateBatchRequest, { now, origin }: CreateBatchContext): number {
  const asked = notAfterMs === undefined ? (windowMs ?? batchWindow.defaultMs) : notAfterMs - now;
  const { minMs } = batchWindow;
  const maxMs = origin === 'request' ? batchWindow.maxMs : batchWindow.moduleMaxMs;
  if (asked >= minMs && asked <= maxMs) return asked;
  const range = `${minMs / second} s to ${maxMs / hour} h`;
  throw bad('batch-window', `the batch would stay open for ${Math.round(asked / minute)} min; allowed are ${range} from now`);
}

const lp = (value: Uint8Array | string): Buffer => {
  const bytes = Buffer.from(value as Uint8Array);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
};

/** Tenant, caller and key make the id (BAT-045); without a key nobody can ask for the same batch again. */
function batchIdOf({ tenantId, createdBy, createdByAgent, idempotencyKey }: CreateBatchRequest): string {
  if (idempotencyKey === undefined) return `b-${randomBytes(16).toString('hex')}`;
  const parts = ['batch-id', tenantId, createdBy, createdByAgent ?? '', idempotencyKey].map(lp);
  return `b-${createHash('sha256').update(Buffer.concat(parts)).digest('hex').slice(0, 32)}`;
}

/** What makes two requests the same: everything that approvers would be shown, and the window as it was asked for. */
function digestOf(request: CreateBatchRequest, { root, size }: Scope): Buffer {
  const { tenantId, reason, notAfterMs, windowMs, waves, delegationId } = request;
  const asked = { notAfterMs: notAfterMs ?? null, windowMs: windowMs ?? null, delegationId: delegationId ?? null, waves: waves ?? null };
  // Once through JSON: a field that is not there is not there.
  const text = canonicalJson(JSON.parse(JSON.stringify({ tenantId, reason, size, ...asked })) as CanonicalValue);
  return createHash('sha256').update(lp(root)).update(lp(text)).digest();
}

function repeated(before: StoredBatch, requestDigest: Buffer, { idempotencyKey }: CreateBatchRequest): CreatedBatch {
  const { id: batchId, required, size, root, state } = before;
  if (before.requestDigest.equals(requestDigest))
    return { batchId, held: required > 0 && state === 'pending', required, size, root, created: false };
  throw new ControlError('CONFLICT', `idempotency key ${idempotencyKey} was used for another request: batch ${batchId}`, {
    details: { reason: 'idempotency-key-used', batchId },
  });
}

async function storeScope(tx: Executor, scope: Scope, leaves: readonly JudgedLeaf[]): Promise<void> {
  const keyOf = (leaf: { subject: string; kind: string; payloadSha256: Uint8Array }): string =>
    `${leaf.subject}\0${leaf.kind}\0${Buffer.from(leaf.payloadSha256).toString('latin1')}`;
  const payloads = new Map(leaves.flatMap((leaf) => (leaf.payload === null ? [] : [[keyOf(leaf), leaf.payload] as const])));
  for (let from = 0; from < scope.size; from += insertPage) {
    const page = scope.leaves.slice(from, from + insertPage).map((leaf, at): NewLeaf => {
      const payload = payloads.size === 0 ? undefined : payloads.get(keyOf(leaf));
      const { hash, subject, kind, payloadSha256 } = leaf;
      const proof = encodeProof(scope.proofOf(from + at));
      return {
        index: from + at,
        hash,
        subject,
        kind,
        proof,
        payloadSha256,
        payloadTypeUrl: payload?.typeUrl ?? null,
        payloadValue: payload?.value ?? null,
      };
    });
    await insertLeaves(tx, scope.batchId, page);
  }
}

interface Announced {
  readonly id: string;
  readonly scope: Scope;
  readonly required: number;
  readonly notAfterMs: number;
  readonly now: number;
}

/** The event command.batch.created, in the trail and once (BAT-048). */
async function announce(tx: Executor, request: CreateBatchRequest, { id, scope, required, notAfterMs, now }: Announced): Promise<void> {
  const { tenantId, reason, createdBy, createdByAgent = null, delegationId = null } = request;
  const details = {
    tenant: tenantId,
    reason,
    size: scope.size,
    root: scope.root.toString('hex'),
    required,
    notAfterMs,
    agent: createdByAgent,
    delegation: delegationId,
  };
  await appendAudit(
    tx,
    { key: `batch/${id}/created`, actor: createdBy, action: 'command.batch.created', subject: id, details, tenant: tenantId },
    now,
  );
}
