/**
 * The offline check of what approvers decided (H-17): believes the pin of the audit key and its own arithmetic. The approvers are counted
 * again from their signatures, over the batch's root or the new set; a document that says "approved" proves nothing by saying so.
 */
import { ControlError } from '../../domain/errors.ts';
import { countApprovers, requiredApprovals, verifyApproverSetChange } from '../quorum/index.ts';
import type { SignedEvidence } from './evidence.ts';
import {
  type ApproverSetEvidence,
  type BatchEvidence,
  digestInEvidence,
  parseQuorumEvidence,
  type QuorumEvidence,
  quorumInEvidence,
} from './quorum-evidence.ts';
import { checkSignatures, type EvidenceProblem, pinnedKey } from './verify-evidence.ts';

export interface QuorumVerdict {
  readonly valid: boolean;
  /** null: the document cannot be read. */
  readonly document: QuorumEvidence | null;
  /** Who signed, counted again. */
  readonly approvedBy: readonly string[];
  readonly problems: readonly EvidenceProblem[];
}

/** Whether a file holds this kind of evidence. */
export function isQuorumEvidence([first]: readonly Pick<SignedEvidence, 'document'>[]): boolean {
  if (first === undefined) return false;
  try {
    parseQuorumEvidence(first.document);
    return true;
  } catch {
    return false;
  }
}

/** @throws ControlError AUDIT_TAMPERED when the key is not the pinned one, INVALID_INPUT when there is not exactly one document */
export function verifyQuorumEvidence(
  signed: readonly SignedEvidence[],
  options: { readonly auditKey: Uint8Array; readonly pin: string },
): QuorumVerdict {
  const key = pinnedKey(options);
  const [only] = signed;
  if (only === undefined || signed.length !== 1) {
    throw new ControlError('INVALID_INPUT', `the evidence holds ${signed.length} documents, not one`, {
      details: { reason: 'no-evidence' },
    });
  }
  const problems: EvidenceProblem[] = [];
  checkSignatures(signed, key, problems);
  const document = read(only, problems);
  if (document === null) return { valid: false, document, approvedBy: [], problems };
  const approvedBy = document.about === 'batch' ? checkBatch(document, problems) : checkSet(document, problems);
  return { valid: problems.length === 0, document, approvedBy, problems };
}

function read({ document }: SignedEvidence, problems: EvidenceProblem[]): QuorumEvidence | null {
  try {
    return parseQuorumEvidence(document);
  } catch (error) {
    problems.push({ check: 'document', stage: '#1', message: (error as Error).message });
    return null;
  }
}

const bytesOf = (signatures: QuorumEvidence['signatures']): { kid: string; sig: Uint8Array }[] =>
  signatures.map(({ kid, sig }) => ({ kid, sig: new Uint8Array(Buffer.from(sig, 'base64url')) }));

/** What went out did so with enough approvers. One that ended before it was approved proves that nothing went out. */
function checkBatch({ id, trustDomain, batch, set, signatures, commands }: BatchEvidence, problems: EvidenceProblem[]): readonly string[] {
  const quorum = quorumInEvidence(set);
  const facts = { batchId: id, root: Buffer.from(batch.root, 'hex'), size: batch.size, notAfterMs: batch.notAfter, trustDomain };
  const { kids } = countApprovers({ quorum, facts, signatures: bytesOf(signatures) });
  const needed = Math.max(batch.required, requiredApprovals(quorum, batch.size));
  const wentOut = commands.some(({ state, count }) => state !== 'cancelled' && count > 0);
  if ((wentOut || batch.state === 'approved') && kids.length < needed)
    problems.push({ check: 'keys', stage: 'approval', message: `${kids.length} of ${needed} approvers signed it, and commands went out` });
  return kids;
}

function checkSet(
  { trustDomain, from, to, signatures, fleet, overrides }: ApproverSetEvidence,
  problems: EvidenceProblem[],
): readonly string[] {
  const change = { from: quorumInEvidence(from), to: quorumInEvidence(to), epoch: to.epoch, signatures: bytesOf(signatures), trustDomain };
  const { byOld, byNew, problem } = verifyApproverSetChange(change);
  if (problem !== null) problems.push({ check: 'keys', stage: 'change', message: problem });
  const forced = overrides.some(({ kind }) => kind === 'force');
  const excluded = new Set(overrides.filter(({ kind }) => kind === 'exclude').map(({ subject }) => subject));
  const holds = to.keys.length === 0 ? null : digestInEvidence(to);
  const behind = fleet.filter(({ nodeId, sha256 }) => sha256 !== holds && !excluded.has(nodeId));
  if (behind.length > 0 && !forced)
    problems.push({
      check: 'fleet',
      stage: 'confirm',
      message: `${behind.length} machine(s) enforce another set: ${behind[0]?.nodeId ?? ''}`,
    });
  return [...new Set([...byOld, ...byNew])];
}
