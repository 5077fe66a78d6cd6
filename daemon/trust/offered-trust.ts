/**
 * What a daemon does with a trust bundle that a gateway hands it: prove the JoinService key signed it, then let the pure rule
 * (pki/trust) decide. Everything that is not taken is named, because a bundle that does not fit is either an old replica or a
 * gateway that lies, and the operator wants to know which (TRUST-002, TRUST-014, TRUST-020).
 */
import { toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { day } from '../../domain/time.ts';
import { acceptTrustBundle, type HeldTrust, verifySignedTrustBundle } from '../../pki/trust/index.ts';
import { type SignedTrustBundle, type TrustBundle, TrustBundleSchema } from '../../proto/index.ts';
import { epochOf, fieldsOf } from '../quorum/held-quorum.ts';
import { reasonOf } from '../reason.ts';
import type { Identity } from '../state/identity.ts';

/** Least time between the last use of a root and its removal; shorter only in demonstrations, by a flag that says so. */
export const productionOverlapMs = day;

export type TrustOffer =
  /** quorumRefused: its approver set was not taken with it (DMN-024). */
  | { readonly kind: 'taken'; readonly held: HeldTrust; readonly quorumRefused: QuorumRefused | null }
  /** The same again. */
  | { readonly kind: 'known' }
  | { readonly kind: 'refused'; readonly offeredVersion: bigint; readonly reason: string; readonly detail: string };

/** What the identity file holds, as the rule sees it. */
export const heldTrustOf = (
  identity: Pick<Identity, 'trust' | 'trustDomain' | 'signaturesRequired' | 'joinedAtMs' | 'quorum'>,
): HeldTrust =>
  Object.freeze({
    version: Number(identity.trust.version),
    trustDomain: identity.trustDomain,
    roots: identity.trust.commandRoots,
    signaturesRequired: identity.signaturesRequired,
    takenAt: identity.joinedAtMs,
    bundle: identity.trust,
    quorum: fieldsOf(identity.quorum),
    approverSetEpoch: epochOf(identity.quorum),
  });

export interface QuorumRefused {
  readonly reason: string;
  readonly detail: string;
}

export interface OfferOptions {
  /** PIN-007; null: the first set is taken as it comes. */
  readonly approverSetPin: string | null;
  readonly joinKey: Uint8Array;
  readonly now: number;
  readonly minOverlapMs: number;
}

export function judgeOfferedTrust(held: HeldTrust, signed: SignedTrustBundle, options: OfferOptions): TrustOffer {
  let offered: TrustBundle;
  try {
    offered = verifySignedTrustBundle(signed, { joinKey: options.joinKey, trustDomain: held.trustDomain });
  } catch (error) {
    if (!(error instanceof ControlError)) throw error;
    return {
      kind: 'refused',
      offeredVersion: 0n,
      reason: reasonOf(error),
      detail: error.message,
    };
  }
  const decision = acceptTrustBundle(held, offered, {
    now: options.now,
    minOverlapMs: options.minOverlapMs,
    trustDomain: held.trustDomain,
    ...(options.approverSetPin === null ? {} : { approverSetPin: options.approverSetPin }),
  });
  switch (decision.kind) {
    case 'take':
      return { kind: 'taken', held: decision.held, quorumRefused: decision.quorumRefused };
    case 'ignore':
      if (sameContent(held.bundle, offered)) return { kind: 'known' };
      return {
        kind: 'refused',
        offeredVersion: offered.version,
        reason: decision.reason,
        detail: `version ${offered.version} was offered, version ${held.version} is held`,
      };
    case 'refuse':
      return { kind: 'refused', offeredVersion: offered.version, reason: decision.reason, detail: decision.detail };
  }
}

const sameContent = (a: TrustBundle, b: TrustBundle): boolean =>
  Buffer.from(toBinary(TrustBundleSchema, a)).equals(toBinary(TrustBundleSchema, b));
