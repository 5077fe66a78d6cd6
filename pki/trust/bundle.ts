/** Building, signing and reading the trust bundle that daemons are given (SIGN-008, SIGN-009, TRUST-020). */
import { create, toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import type { RemovedRootEntry } from '../../domain/rotation/stages.ts';
import {
  decodeMessage,
  encodeMessage,
  type SignedTrustBundle,
  SignedTrustBundleSchema,
  type TrustBundle,
  TrustBundleSchema,
} from '../../proto/index.ts';
import type { PkiBundle, PublicBundle } from '../bundle/index.ts';
import { signEnvelope, verifyEnvelope } from '../envelope/index.ts';
import type { Signer } from '../x509/index.ts';
import { noQuorum, type QuorumFields, type TrustContent } from './content.ts';

export interface BuildTrustBundleOptions {
  readonly version: number;
  readonly trustDomain: string;
  readonly roots: readonly Uint8Array[];
  /** Roots that left, newest first: what a daemon needs to give one up. */
  readonly removed: readonly RemovedRootEntry[];
  readonly quorum?: PublishedSet;
}

export interface PublishedSet extends QuorumFields {
  /** The sets that were in force, newest last (H-10); the last 16 are carried. */
  readonly changes?: readonly QuorumFields[];
}

export function buildTrustBundle({ version, trustDomain, roots, removed, quorum = noQuorum }: BuildTrustBundleOptions): TrustBundle {
  return create(TrustBundleSchema, {
    version: BigInt(version),
    trustDomain,
    commandRoots: [...roots],
    removedRoots: removed.map((entry) => ({
      sha256: Buffer.from(entry.id, 'hex'),
      switchedAtMs: BigInt(entry.switchedAt),
      removedAtMs: BigInt(entry.removedAt),
      forcedReason: entry.forcedReason,
    })),
    approverKeys: quorum.approverKeys.map(({ kid, spki }) => ({ kid, spkiDer: spki })),
    approverThreshold: quorum.approverThreshold,
    quorumTiers: quorum.tiers.map((tier) => ({ ...tier })),
    unbatchedDestructivePerHour: quorum.unbatchedDestructivePerHour,
    approverSetSignatures: quorum.approverSetSignatures.map((entry) => ({ ...entry })),
    approverSetEpoch: BigInt(quorum.approverSetEpoch),
    approverSetChanges: (quorum.changes ?? []).slice(-16).map((change) => ({
      epoch: BigInt(change.approverSetEpoch),
      keys: change.approverKeys.map(({ kid, spki }) => ({ kid, spkiDer: spki })),
      threshold: change.approverThreshold,
      tiers: change.tiers.map((tier) => ({ ...tier })),
      unbatchedDestructivePerHour: change.unbatchedDestructivePerHour,
      signatures: change.approverSetSignatures.map((entry) => ({ ...entry })),
    })),
  });
}

/** What a key bundle makes a deployment publish; the digest and the trust bundle are built from it. */
export const trustContentOf = (bundle: PkiBundle | PublicBundle): TrustContent & { readonly roots: readonly Uint8Array[] } => ({
  roots: [...bundle.commandRootsById.values()].map((root) => root.certificate.der),
});

/** The trust bundle of a key bundle at a settled version. */
export const trustBundleOf = (bundle: PkiBundle | PublicBundle, version: number, quorum?: PublishedSet): TrustBundle =>
  buildTrustBundle({
    version,
    trustDomain: bundle.trustDomain,
    ...trustContentOf(bundle),
    removed: bundle.commandRoots.removed,
    ...(quorum === undefined ? {} : { quorum }),
  });

/**
 * Signs with the JoinService key, whose public half daemons pin.
 *
 * @returns an encoded SignedTrustBundle
 * @throws ProtocolError above the bound
 */
export async function signTrustBundle(signer: Signer, bundle: TrustBundle): Promise<Uint8Array> {
  const body = encodeMessage(TrustBundleSchema, bundle, 'trustBundle');
  const signature = await signEnvelope(signer, 'trust-bundle', [body]);
  return toBinary(SignedTrustBundleSchema, create(SignedTrustBundleSchema, { body, signature }));
}

export interface VerifyTrustBundleOptions {
  /** SPKI of the pinned JoinService key. */
  readonly joinKey: Uint8Array;
  readonly trustDomain: string;
}

/**
 * Proves that the pinned key signed exactly these bytes for this trust domain. Whether a daemon takes the bundle is
 * acceptTrustBundle's question.
 *
 * @throws BAD_SIGNATURE when it did not; MALFORMED when the bytes are none; PERMISSION_DENIED (`wrong-trust-domain`)
 */
export function verifySignedTrustBundle(
  signed: Uint8Array | SignedTrustBundle,
  { joinKey, trustDomain }: VerifyTrustBundleOptions,
): TrustBundle {
  const { body, signature } = signed instanceof Uint8Array ? decodeTrust(SignedTrustBundleSchema, signed) : signed;
  verifyEnvelope({ signature, purpose: 'trust-bundle', parts: [body], key: joinKey });
  const bundle = decodeTrust(TrustBundleSchema, body);
  if (bundle.trustDomain !== trustDomain) {
    throw new ControlError('PERMISSION_DENIED', `the trust bundle is of trust domain ${bundle.trustDomain}, not ${trustDomain}`, {
      details: { reason: 'wrong-trust-domain' },
    });
  }
  return bundle;
}

type TrustSchema = typeof TrustBundleSchema | typeof SignedTrustBundleSchema;

function decodeTrust<S extends TrustSchema>(schema: S, bytes: Uint8Array): ReturnType<typeof decodeMessage<S>> {
  try {
    return decodeMessage(schema, bytes, 'trustBundle');
  } catch (cause) {
    throw new ControlError('MALFORMED', `the ${schema.name} does not decode`, { cause, details: { reason: 'trust-bundle' } });
  }
}
