/**
 * What a trust bundle says, and the digest its version follows (TRUST-001, TRUST-004, A-PKI-13): the set of root hashes, the
 * canonical quorum fields, the set's epoch and its signatures. The version itself, the order of roots and the record of
 * removed roots are not content: an aborted rotation publishes content that was published before, and must be known as such.
 */
import { createHash } from 'node:crypto';
import { u64be } from '../../proto/index.ts';

export interface ApproverKeyEntry {
  readonly kid: string;
  readonly spki: Uint8Array;
}

export interface QuorumTierEntry {
  readonly maxScopeSize: number;
  readonly threshold: number;
}

export interface ApproverSetSignatureEntry {
  readonly kid: string;
  readonly sig: Uint8Array;
}

/** The quorum fields of a bundle; all empty unless a quorum is configured (TRUST-021). */
export interface QuorumFields {
  readonly approverKeys: readonly ApproverKeyEntry[];
  readonly approverThreshold: number;
  readonly tiers: readonly QuorumTierEntry[];
  readonly unbatchedDestructivePerHour: number;
  readonly approverSetSignatures: readonly ApproverSetSignatureEntry[];
  readonly approverSetEpoch: number | bigint;
}

export const noQuorum: QuorumFields = Object.freeze({
  approverKeys: Object.freeze([]),
  approverThreshold: 0,
  tiers: Object.freeze([]),
  unbatchedDestructivePerHour: 0,
  approverSetSignatures: Object.freeze([]),
  approverSetEpoch: 0,
});

export interface TrustContent {
  /** DER of the command-signing roots. */
  readonly roots: readonly Uint8Array[];
  readonly quorum?: QuorumFields;
}

const label = 'bettercompute.v1/trust-content\0';

/** Lower-case hex. Reordering or repeating a root, key or signature changes nothing; anything else does. */
export function trustContentDigest({ roots, quorum = noQuorum }: TrustContent): string {
  const hashes = distinct(roots.map((der) => createHash('sha256').update(der).digest()));
  const signatures = distinct(
    quorum.approverSetSignatures.map(({ kid, sig }) => Buffer.concat([lengthPrefixed(Buffer.from(kid, 'utf8')), lengthPrefixed(sig)])),
  );
  return createHash('sha256')
    .update(label, 'latin1')
    .update(listOf(hashes))
    .update(lengthPrefixed(approverSetInput(quorum)))
    .update(u64be(quorum.approverSetEpoch))
    .update(listOf(signatures))
    .digest('hex');
}

/** The canonical quorum bytes (QUO-042). */
export function approverSetInput({ approverKeys, approverThreshold, tiers, unbatchedDestructivePerHour }: QuorumFields): Uint8Array {
  const keys = approverKeys
    .map(({ kid, spki }) => Buffer.concat([lengthPrefixed(Buffer.from(kid, 'utf8')), lengthPrefixed(spki)]))
    .sort(Buffer.compare);
  return Buffer.concat([
    u32(keys.length),
    ...keys,
    u32(approverThreshold),
    u32(tiers.length),
    ...tiers.flatMap((tier) => [u32(tier.maxScopeSize), u32(tier.threshold)]),
    u32(unbatchedDestructivePerHour),
  ]);
}

/** Lower-case hex SHA-256 of the canonical quorum bytes: what pins the first set (CLI-066). */
export const approverSetDigest = (quorum: QuorumFields): string => createHash('sha256').update(approverSetInput(quorum)).digest('hex');

const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};

const lengthPrefixed = (bytes: Uint8Array): Buffer => Buffer.concat([u32(bytes.length), bytes]);

const listOf = (entries: readonly Buffer[]): Buffer => Buffer.concat([u32(entries.length), ...entries.map(lengthPrefixed)]);

const distinct = (entries: readonly Buffer[]): Buffer[] =>
  [...entries].sort(Buffer.compare).filter((entry, index, sorted) => index === 0 || !entry.equals(sorted[index - 1] as Buffer));
