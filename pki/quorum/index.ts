/**
 * The quorum: k of n approvers, outside of the control plane, sign a Merkle scope of operations; each machine judges by itself whether the
 * command in its hand is one of them (QUO-001 to QUO-005).
 *
 * Invariants: a leaf is one operation on one subject, bound to the batch and, unless it says otherwise, to the payload; an approval is
 * bound to root, size, window and trust domain; thresholds count distinct keys; the set of approvers changes only by the hands of
 * the set before it.
 *
 * Threat model: api, workers, gateways and the database may lie together. They can hold work back and can spend approvals that exist, once
 * for each leaf; they cannot widen a batch, move it to another deployment, stretch its window, or name approvers of their own to a
 * machine that knows its approvers or their pin.
 *
 * What it does not do: remember which leaf was used (daemon/quorum), keep batches (services/batches), read files or clocks, decide who
 * may ask for a batch (the api's identity comes on top, never instead).
 */
export { maxBatchPayloads, maxLeafPayload, maxLeaves } from '../../domain/batch/limits.ts';
export {
  type ApprovalFacts,
  type CountedApprovers,
  countApprovers,
  countSigners,
  requiredApprovals,
  type SignatureFault,
  signApproval,
} from './approval.ts';
export {
  approverSetParts,
  quorumChangesOf,
  quorumOf,
  type SetChange,
  type SetFacts,
  signApproverSet,
  signersOfSet,
  verifyApproverSetChange,
} from './approver-set.ts';
export { decideApproverSet, type HeldSet, maxWalkedChanges, type SetDecision, type SetRefusal } from './decide-set.ts';
export { batchSubject, leafHash, type ScopeLeaf } from './leaf.ts';
export { createScope, decodeProof, encodeProof, type HashedLeaf, parseProof, rootOfScope, type Scope } from './scope.ts';
export { type Inclusion, isIncluded, type Proof } from './tree.ts';
export { problemsOfQuorum, validateQuorum } from './validate-quorum.ts';
export { type CommandLeaf, type QuorumReason, type QuorumVerdict, type VerifyQuorumOptions, verifyQuorum } from './verify-quorum.ts';
