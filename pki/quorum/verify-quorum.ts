/**
 * The verdict on a destructive command under a quorum: is this very operation a leaf of a scope that enough approvers signed, and is the
 * window still open? (QUO-003, QUO-005, DMN-004 to DMN-011.) Whether the leaf was used before is the caller's to know (DMN-012).
 */
import { maxLeaves } from '../../domain/batch/limits.ts';
import { showInstant } from '../../domain/time.ts';
import type { BatchApproval, BatchProof } from '../../proto/index.ts';
import type { QuorumFields } from '../trust/content.ts';
import { type ApprovalFacts, countApprovers, requiredApprovals } from './approval.ts';
import { hashBytes, leafHash, problemOfLeaf } from './leaf.ts';
import { parseProof } from './scope.ts';
import { isIncluded, type Proof } from './tree.ts';

/** The first ten are of verifyQuorum; the others are of a daemon that holds no set, no bundle, or a used leaf or allowance. */
export type QuorumReason =
  | 'no-approval'
  | 'approval-malformed'
  | 'batch-differs'
  | 'approval-expired'
  | 'no-proof'
  | 'proof-malformed'
  | 'not-in-scope'
  | 'unbound-write'
  | 'too-few-approvals'
  | 'leaf-used'
  | 'awaiting-pinned-set'
  | 'no-bundle'
  | 'unbatched-limit';

/** The command as its leaf would be: the digest is that of its own payload. */
export interface CommandLeaf {
  readonly subject: string;
  readonly kind: string;
  readonly payloadSha256: Uint8Array;
}

export interface VerifyQuorumOptions {
  readonly quorum: QuorumFields;
  /** Of the signed body. */
  readonly batchId: string;
  readonly leaf: CommandLeaf;
  readonly approval?: BatchApproval | undefined;
  readonly proof?: BatchProof | undefined;
  /** The verifier's own. */
  readonly trustDomain: string;
  /** Server time. */
  readonly now: number;
  /** Only a leaf that is bound to this payload counts (DMN-035). */
  readonly boundOnly?: boolean;
}

type Refused = { readonly ok: false; readonly reason: QuorumReason; readonly detail: string };

export type QuorumVerdict = { readonly ok: true /** Lower-case hex. */; readonly leafHash: string; readonly notAfterMs: number } | Refused;

const refuse = (reason: QuorumReason, detail: string): Refused => ({ ok: false, reason, detail });

/** Never throws. What costs little is asked first; a command that is in no scope costs no signature check. */
export function verifyQuorum(options: VerifyQuorumOptions): QuorumVerdict {
  const facts = factsOf(options); //                    1. an approval that can be read, of this batch
  if ('ok' in facts) return facts;
  const expired = refuseExpired(facts, options.now); // 2. within its window, by server time
  if (expired !== null) return expired;
  const proof = proofFrom(options, facts); //           3. a proof that can be read
  if ('ok' in proof) return proof;
  const leaf = provenLeaf(options, facts, proof); //    4. of this operation, in that scope
  if (typeof leaf !== 'string') return leaf;
  const alone = refuseTooFew(options, facts); //        5. signed by enough approvers
  return alone ?? { ok: true, leafHash: leaf, notAfterMs: facts.notAfterMs };
}

function factsOf({ approval, batchId, trustDomain }: VerifyQuorumOptions): ApprovalFacts | Refused {
  if (approval === undefined) return refuse('no-approval', `batch ${batchId} comes without its approval`);
  const { scopeRoot, scopeSize, notAfterMs } = approval;
  if (scopeRoot.length !== hashBytes) return refuse('approval-malformed', `the root has ${scopeRoot.length} bytes, not ${hashBytes}`);
  if (scopeSize < 1n || scopeSize > BigInt(maxLeaves))
    return refuse('approval-malformed', `a scope has 1 to ${maxLeaves} leaves, not ${scopeSize}`);
  if (notAfterMs > BigInt(Number.MAX_SAFE_INTEGER)) return refuse('approval-malformed', `no time is ${notAfterMs} ms`);
  if (approval.batchId !== batchId) return refuse('batch-differs', 'the approval is of another batch than the command');
  return { batchId, root: scopeRoot, size: Number(scopeSize), notAfterMs: Number(notAfterMs), trustDomain };
}

function refuseExpired({ notAfterMs }: ApprovalFacts, now: number): Refused | null {
  if (now <= notAfterMs) return null;
  // A time outside of the calendar is shown as its number.
  const end = notAfterMs <= 8.64e15 ? showInstant(notAfterMs) : String(notAfterMs);
  return refuse('approval-expired', `the approval ended at ${end}`);
}

function proofFrom({ proof, batchId }: VerifyQuorumOptions, { size }: ApprovalFacts): Proof | Refused {
  if (proof === undefined) return refuse('no-proof', `the command of batch ${batchId} comes without its proof`);
  const parsed = parseProof(proof);
  if (parsed === null || parsed.index >= size) return refuse('proof-malformed', `the proof is of no leaf in a scope of ${size}`);
  return parsed;
}

/** The hash of the bound leaf or, unless a bound one is asked for, of the unbound one, whichever the proof proves (QUO-014, A-PKI-45). */
function provenLeaf({ leaf, batchId, boundOnly }: VerifyQuorumOptions, { root, size }: ApprovalFacts, proof: Proof): string | Refused {
  const problem = problemOfLeaf(leaf);
  if (problem !== null || leaf.payloadSha256.length === 0) return refuse('not-in-scope', problem ?? 'the command has no payload digest');
  const matches = (payloadSha256: Uint8Array): string | null => {
    const hash = leafHash(batchId, { ...leaf, payloadSha256 });
    return isIncluded({ hash, proof, root, size }) ? hash.toString('hex') : null;
  };
  const bound = matches(leaf.payloadSha256);
  if (bound !== null) return bound;
  const unbound = matches(new Uint8Array());
  if (unbound === null) return refuse('not-in-scope', `${leaf.kind} on ${leaf.subject} is not the operation that the proof proves`);
  return boundOnly === true
    ? refuse('unbound-write', `${leaf.kind} on ${leaf.subject} needs a leaf that is bound to its payload`)
    : unbound;
}

function refuseTooFew({ quorum, approval }: VerifyQuorumOptions, facts: ApprovalFacts): Refused | null {
  const required = requiredApprovals(quorum, facts.size);
  const { kids } = countApprovers({ quorum, facts, signatures: approval?.signatures ?? [], enough: required });
  return kids.length >= required
    ? null
    : refuse('too-few-approvals', `${kids.length} of ${required} approvals for a scope of ${facts.size}`);
}
