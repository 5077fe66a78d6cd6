/**
 * The Merkle tree hash of RFC 6962 section 2.1: one hash that stands for an ordered list. Leaves and nodes are hashed under
 * different prefixes, so an inner node can never be passed off as a leaf.
 */
import { createHash } from 'node:crypto';

const leafPrefix = Uint8Array.of(0);
const nodePrefix = Uint8Array.of(1);

const sha256 = (...parts: readonly Uint8Array[]): Uint8Array => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return new Uint8Array(hash.digest());
};

/** MTH(leaves). The tree of no leaves is SHA-256 of nothing, as the RFC says. Never fails. */
export function merkleRoot(leaves: readonly Uint8Array[]): Uint8Array {
  if (leaves.length === 0) return sha256();
  let level = leaves.map((leaf) => sha256(leafPrefix, leaf));
  // Pairing neighbours and carrying an odd last one upwards gives the RFC's split at the largest power of two.
  while (level.length > 1) {
    const above: Uint8Array[] = [];
    for (let at = 0; at < level.length; at += 2) {
      const [left, right] = [level[at], level[at + 1]];
      above.push(right === undefined ? (left as Uint8Array) : sha256(nodePrefix, left as Uint8Array, right));
    }
    level = above;
  }
  return level[0] as Uint8Array;
}
