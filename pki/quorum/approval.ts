/**
 * An approval: what one approver signs, and how many approvers a set of signatures stands for (QUO-044 to QUO-046, DMN-004 to DMN-008).
 *
 * People are counted, not signatures: one key counts once however often and in whatever form it signed ((r, n − s) verifies as well),
 * a key counts under its own id only, and a signature that does not verify spoils nothing beside it.
 */
import { type Signature, signingInput, u64be } from '../../proto/index.ts';
import { signEnvelope } from '../envelope/envelope.ts';
import type { QuorumFields } from '../trust/content.ts';
import type { Signer } from '../x509/index.ts';
import { rawSignatureBytes, verifyRawSignature } from '../x509/signature.ts';
import { approverKeysOf } from './approver-keys.ts';

/** Everything an approval says. The trust domain is the verifier's own: an approval for staging is none in production. */
export interface ApprovalFacts {
  readonly batchId: string;
  /** Of the scope, 32 bytes. */
  readonly root: Uint8Array;
  readonly size: number;
  /** Server time after which nothing of the batch starts, Unix milliseconds. */
  readonly notAfterMs: number;
  readonly trustDomain: string;
}

export const approvalParts = ({ batchId, root, size, notAfterMs, trustDomain }: ApprovalFacts): (Uint8Array | string)[] => [
  batchId,
  root,
  u64be(size),
  u64be(notAfterMs),
  trustDomain,
];

/** Purpose batch-approval; throws as signEnvelope does. */
export const signApproval = (signer: Signer, facts: ApprovalFacts): Promise<Signature> =>
  signEnvelope(signer, 'batch-approval', approvalParts(facts));

/**
 * Distinct approvers that a scope of this size needs: the first tier that is large enough, else the top threshold (A-PKI-49). 0 without
 * approver keys; with keys never below 1, whatever the set says (DMN-006).
 */
export function requiredApprovals({ approverKeys, approverThreshold, tiers }: QuorumFields, size: number): number {
  if (approverKeys.length === 0) return 0;
  const [tier] = tiers.filter(({ maxScopeSize }) => maxScopeSize >= size).sort((a, b) => a.maxScopeSize - b.maxScopeSize);
  return Math.max(1, tier?.threshold ?? approverThreshold);
}

export type SignatureFault = 'unknown-key' | 'bad-signature' | 'duplicate' | 'bad-kid';

export interface CountedApprovers {
  /** Distinct, verified, in the order they came. */
  readonly kids: readonly string[];
  readonly refused: readonly { readonly kid: string; readonly reason: SignatureFault }[];
}

export interface CountOptions {
  readonly quorum: QuorumFields;
  readonly facts: ApprovalFacts;
  readonly signatures: readonly Pick<Signature, 'kid' | 'sig'>[];
  /** Stop once so many are proven; by default all are judged. */
  readonly enough?: number;
}

/** Who approved. Never throws: what a stranger attached is refused, one by one. */
export const countApprovers = ({ quorum, facts, signatures, enough }: CountOptions): CountedApprovers =>
  countSigners({
    quorum,
    input: signingInput('batch-approval', approvalParts(facts)),
    signatures,
    ...(enough === undefined ? {} : { enough }),
  });

export interface SignersOptions {
  readonly quorum: QuorumFields;
  /** The signed bytes. */
  readonly input: Uint8Array;
  readonly signatures: CountOptions['signatures'];
  readonly enough?: number;
}

/** Signatures under one key id that are tried; who brings more of them wants to keep the verifier busy. */
const attemptsPerKey = 4;

/** The approvers of a set who signed these bytes. */
export function countSigners({ quorum, input, signatures, enough = Number.POSITIVE_INFINITY }: SignersOptions): CountedApprovers {
  const keys = approverKeysOf(quorum);
  const kids = new Set<string>();
  const attempts = new Map<string, number>();
  const verifies = (kid: string, key: Uint8Array, sig: Uint8Array): boolean => {
    const tried = attempts.get(kid) ?? 0;
    if (sig.length !== rawSignatureBytes || tried === attemptsPerKey) return false;
    attempts.set(kid, tried + 1);
    return verifyRawSignature({ spki: key, input, signature: sig });
  };
  const refused: CountedApprovers['refused'][number][] = [];
  for (const { kid, sig } of signatures) {
    if (kids.size >= enough) break;
    const key = keys.get(kid);
    if (kids.has(kid)) refused.push({ kid, reason: 'duplicate' });
    else if (key === undefined) refused.push({ kid, reason: 'unknown-key' });
    else if (key === 'bad-kid') refused.push({ kid, reason: 'bad-kid' });
    else if (verifies(kid, key, sig)) kids.add(kid);
    else refused.push({ kid, reason: 'bad-signature' });
  }
  return { kids: [...kids], refused };
}
