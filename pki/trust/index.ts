/**
 * The trust bundle: what a daemon believes in, who signed it and when it changes its mind.
 *
 * Invariants: signed by the pinned JoinService key over the received bytes; the digest names content, the version names
 * order; a daemon only ever moves to a greater version, never to none of its trust, and gives up a root only for a reason
 * that the bundle states.
 *
 * What it does not do: settle versions (domain/trust/version.ts), publish (services), keep files (daemon/), judge approver
 * sets (pki/quorum).
 */
export {
  type AcceptOptions,
  acceptTrustBundle,
  type HeldTrust,
  type QuorumRefusal,
  type RefusalReason,
  type TrustAcceptance,
} from './accept.ts';
export {
  type BuildTrustBundleOptions,
  buildTrustBundle,
  type PublishedSet,
  signTrustBundle,
  trustBundleOf,
  trustContentOf,
  type VerifyTrustBundleOptions,
  verifySignedTrustBundle,
} from './bundle.ts';
export {
  type ApproverKeyEntry,
  type ApproverSetSignatureEntry,
  approverSetDigest,
  approverSetInput,
  noQuorum,
  type QuorumFields,
  type QuorumTierEntry,
  type TrustContent,
  trustContentDigest,
} from './content.ts';
