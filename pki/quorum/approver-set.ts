/**
 * Changing who approves (APPR-001 to APPR-006, H-10). A set is signed together with its own epoch and the trust domain; the version of
 * the trust bundle is not part of it, so that a rotation of roots leaves the signatures good.
 */
import { signingInput, type TrustBundle, u64be } from '../../proto/index.ts';
import { signEnvelope } from '../envelope/envelope.ts';
import { type ApproverSetSignatureEntry, approverSetDigest, type QuorumFields } from '../trust/content.ts';
import type { Signer } from '../x509/index.ts';
import { countSigners } from './approval.ts';
import { problemsOfQuorum } from './validate-quorum.ts';

export interface SetFacts {
  readonly epoch: number;
  readonly quorum: QuorumFields;
  readonly trustDomain: string;
}

export const approverSetParts = ({ epoch, quorum, trustDomain }: SetFacts): (Uint8Array | string)[] => [
  u64be(epoch),
  Buffer.from(approverSetDigest(quorum), 'hex'),
  trustDomain,
];

/** Purpose approver-set; throws as signEnvelope does. */
export async function signApproverSet(signer: Signer, facts: SetFacts): Promise<ApproverSetSignatureEntry> {
  const { kid, sig } = await signEnvelope(signer, 'approver-set', approverSetParts(facts));
  return { kid, sig };
}

/** The approvers of `by` who signed a set. */
export const signersOfSet = (by: QuorumFields, facts: SetFacts, signatures: readonly ApproverSetSignatureEntry[]): readonly string[] =>
  countSigners({ quorum: by, input: signingInput('approver-set', approverSetParts(facts)), signatures }).kids;

export interface SetChange {
  readonly from: QuorumFields;
  readonly to: QuorumFields;
  readonly epoch: number;
  readonly signatures: readonly ApproverSetSignatureEntry[];
  readonly trustDomain: string;
}

/**
 * Whether a change may be published: signed by the old set's threshold of its own keys, and by the new set's threshold of its own (H-10).
 * A set without keys asks nobody.
 */
export function verifyApproverSetChange({ from, to, epoch, signatures, trustDomain }: SetChange): {
  readonly byOld: readonly string[];
  readonly byNew: readonly string[];
  /** null: it may. */
  readonly problem: string | null;
} {
  const facts = { epoch, quorum: to, trustDomain };
  const byOld = signersOfSet(from, facts, signatures);
  const byNew = signersOfSet(to, facts, signatures);
  const [malformed] = problemsOfQuorum(to);
  const problem =
    malformed ??
    (to.approverKeys.length > 0 || from.approverKeys.length > 0 ? null : 'neither set has an approver') ??
    missing(from, byOld, 'of the current set') ??
    missing(to, byNew, 'of the new set itself');
  return { byOld, byNew, problem };
}

function missing({ approverKeys, approverThreshold }: QuorumFields, signed: readonly string[], whose: string): string | null {
  if (approverKeys.length === 0) return null;
  if (approverThreshold < 1) return `the threshold ${whose} is ${approverThreshold}: it admits no change`;
  return signed.length >= approverThreshold ? null : `${signed.length} of ${approverThreshold} approvers ${whose} signed it`;
}

const wireKeys = (keys: TrustBundle['approverKeys']): QuorumFields['approverKeys'] =>
  Object.freeze(keys.map(({ kid, spkiDer }) => Object.freeze({ kid, spki: spkiDer })));

/** The quorum fields of a bundle as they came, frozen; they may be malformed. */
export const quorumOf = (bundle: TrustBundle): QuorumFields =>
  Object.freeze({
    approverKeys: wireKeys(bundle.approverKeys),
    approverThreshold: bundle.approverThreshold,
    tiers: bundle.quorumTiers.map(({ maxScopeSize, threshold }) => ({ maxScopeSize, threshold })),
    unbatchedDestructivePerHour: bundle.unbatchedDestructivePerHour,
    approverSetSignatures: bundle.approverSetSignatures.map(({ kid, sig }) => ({ kid, sig })),
    approverSetEpoch: bundle.approverSetEpoch,
  });

/** The sets that a bundle says were in force, newest last; frozen, and perhaps malformed. */
export const quorumChangesOf = (bundle: TrustBundle): readonly QuorumFields[] =>
  bundle.approverSetChanges.map((change) =>
    Object.freeze({
      approverKeys: wireKeys(change.keys),
      approverThreshold: change.threshold,
      tiers: change.tiers.map(({ maxScopeSize, threshold }) => ({ maxScopeSize, threshold })),
      unbatchedDestructivePerHour: change.unbatchedDestructivePerHour,
      approverSetSignatures: change.signatures.map(({ kid, sig }) => ({ kid, sig })),
      approverSetEpoch: change.epoch,
    }),
  );
