/** Taking an approval (BAT-062, BAT-064, QUO-046): the full check, against the published set and this process's own trust domain. */
import { batchStateAt } from '../../domain/batch/states.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Database, Executor } from '../../drizzle/client.ts';
import { insertApproval, lockBatches, readApprovals, type StoredBatch, storeApproval } from '../../drizzle/queries/batches.ts';
import { type ApprovalFacts, countApprovers, requiredApprovals } from '../../pki/quorum/index.ts';
import type { QuorumFields } from '../../pki/trust/index.ts';
import { appendAudit } from '../audit.ts';
import { hasApprovers, readPublishedQuorum } from '../published-quorum.ts';
import { type ApproverSignature, encodeApproval } from './approval-bytes.ts';
import { notOpen, unknownBatch } from './refusals.ts';
import type { RecordedApproval } from './types.ts';

export interface ApprovalInput {
  readonly batchId: string;
  readonly signature: ApproverSignature;
  /** Who brought it, for the trail: never what counts. */
  readonly submittedBy?: string;
}

/**
 * Records one approval; with enough of them the batch is approved. An approval of an approved batch is kept too: the set may ask for
 * more by the time of the release (A-PKI-46).
 *
 * @throws INVALID_INPUT, BAD_SIGNATURE or PERMISSION_DENIED for a signature that does not count; NOT_FOUND; INVALID_STATE when the
 *   batch takes none any more, or no approver set is published
 */
export async function recordApproval(
  db: Database,
  { batchId, signature, submittedBy = 'approver' }: ApprovalInput,
  { now, trustDomain }: { now: number; trustDomain: string },
): Promise<RecordedApproval> {
  assertForm(signature);
  return db.transaction(async (tx) => {
    const [batch] = await lockBatches(tx, [batchId]);
    if (batch === undefined) throw unknownBatch(batchId);
    const state = batchStateAt(batch, now);
    if (state !== 'pending' && state !== 'approved') throw notOpen(batchId, state, 'it takes no approval');
    const quorum = await readPublishedQuorum(tx);
    const facts = factsOf(batch, trustDomain);
    const kid = assertCounts(quorum, facts, signature);
    const isNew = await insertApproval(tx, { batchId, kid, signature: signature.sig, approvedBy: submittedBy, now });
    const standing = await standingOf(tx, batch, { quorum, trustDomain });
    const isApproved = standing.have >= standing.required;
    if (isNew || (isApproved && state === 'pending')) await remember(tx, batch, { kid, submittedBy, standing, isApproved, now });
    return {
      kind: isNew ? 'recorded' : 'already',
      kid,
      have: standing.have,
      required: standing.required,
      released: isApproved || state === 'approved',
    };
  });
}

function assertForm({ kid, sig }: ApproverSignature): void {
  if (/^[0-9a-f]{64}$/.test(kid) && sig.length === 64) return;
  throw new ControlError('INVALID_INPUT', 'an approval is a kid of 64 lower-case hex digits and a signature of 64 bytes', {
    details: { reason: 'bad-approval', kid: kid.slice(0, 64), signatureBytes: sig.length },
  });
}

/** What an approver of this batch signs, for this deployment (never for the one a row names). */
export const factsOf = ({ id, root, size, notAfterMs }: StoredBatch, trustDomain: string): ApprovalFacts => ({
  batchId: id,
  root,
  size,
  notAfterMs,
  trustDomain,
});

/** @returns the approver's key id */
function assertCounts(quorum: QuorumFields, facts: ApprovalFacts, signature: ApproverSignature): string {
  if (!hasApprovers(quorum))
    throw new ControlError('INVALID_STATE', 'no approver set is published: there is nobody whose approval could count', {
      details: { reason: 'no-approvers' },
    });
  const { kids, refused } = countApprovers({ quorum, facts, signatures: [signature] });
  const [kid] = kids;
  if (kid !== undefined) return kid;
  const reason = refused[0]?.reason ?? 'bad-signature';
  const key = signature.kid.slice(0, 12);
  if (reason === 'bad-signature') {
    throw new ControlError(
      'BAD_SIGNATURE',
      `the signature by ${key} is not over batch ${facts.batchId} as it is stored, for trust domain ${facts.trustDomain}: review and sign it again`,
      { details: { reason, kid: signature.kid } },
    );
  }
  throw new ControlError('PERMISSION_DENIED', `key ${key} is no approver of the published set`, {
    details: { reason, kid: signature.kid },
  });
}

export interface Standing {
  /** Distinct approvers of the published set whose signature stands. */
  readonly have: number;
  /** By the batch and by the published set, whichever is more. */
  readonly required: number;
  readonly signatures: readonly ApproverSignature[];
}

/** How far a batch is by the set that is published now. */
export async function standingOf(
  tx: Executor,
  batch: StoredBatch,
  { quorum, trustDomain }: { quorum: QuorumFields; trustDomain: string },
): Promise<Standing> {
  const stored = await readApprovals(tx, batch.id);
  const signatures = stored.map(({ kid, signature }) => ({ kid, sig: new Uint8Array(signature) }));
  const { kids } = countApprovers({ quorum, facts: factsOf(batch, trustDomain), signatures });
  const counted = new Set(kids);
  return {
    have: counted.size,
    required: hasApprovers(quorum) ? Math.max(batch.required, requiredApprovals(quorum, batch.size)) : batch.required,
    // What nobody would count does not travel.
    signatures: signatures.filter(({ kid }) => counted.has(kid)),
  };
}

interface Remembered {
  readonly kid: string;
  readonly submittedBy: string;
  readonly standing: Standing;
  readonly isApproved: boolean;
  readonly now: number;
}

async function remember(tx: Executor, batch: StoredBatch, { kid, submittedBy, standing, isApproved, now }: Remembered): Promise<void> {
  const { id, tenantId, state } = batch;
  const { have, required } = standing;
  await storeApproval(tx, { batchId: id, approval: encodeApproval(factsOf(batch, ''), standing.signatures), isApproved, now });
  const event = { actor: submittedBy, subject: id, tenant: tenantId };
  const details = { kid, have, required };
  await appendAudit(tx, { ...event, key: `batch/${id}/approval/${kid}`, action: 'command.batch.approval', details }, now);
  if (isApproved && state === 'pending')
    await appendAudit(tx, { ...event, key: `batch/${id}/approved`, action: 'command.batch.approved', details: { have, required } }, now);
}
