/**
 * The Merkle tree over leaf hashes: RFC 6962 in shape, an odd node is carried upwards (QUO-009, QUO-010), inner nodes are
 * H(0x01 ‖ left ‖ right). All levels stand in flat buffers, so that 50,000 leaves with all their proofs cost little more than their hashes.
 */
import { hashBytes, hashInto } from './leaf.ts';

/** Place and path of a leaf. */
export interface Proof {
  readonly index: number;
  /** 32 bytes each, from the leaf upwards. */
  readonly siblings: readonly Uint8Array[];
}

export class Tree {
  /** Level 0 holds the leaves, the last level the root. */
  readonly #levels: readonly Buffer[];
  /** One view for each node of a level: proofs share them. A level has none before its first proof. */
  readonly #views: (readonly Buffer[])[] = [];

  /** @param leaves at least one hash, one behind the other */
  constructor(leaves: Buffer) {
    const levels = [leaves];
    for (let level = leaves; level.length > hashBytes; levels.push(level)) level = levelAbove(level);
    this.#levels = levels;
  }

  get root(): Buffer {
    return this.#levels.at(-1) as Buffer;
  }

  /** @param index of a leaf, below the number of leaves */
  proofOf(index: number): Proof {
    const siblings: Buffer[] = [];
    for (let level = 0, at = index; level < this.#levels.length - 1; level += 1, at >>>= 1) {
      const nodes = this.#views[level] ?? this.#viewsOf(level);
      const neighbour = at ^ 1;
      // An odd last node has no neighbour: it stands for itself one level up.
      if (neighbour < nodes.length) siblings.push(nodes[neighbour] as Buffer);
    }
    return { index, siblings };
  }

  #viewsOf(level: number): readonly Buffer[] {
    const nodes = this.#levels[level] as Buffer;
    const views: Buffer[] = [];
    for (let at = 0; at < nodes.length; at += hashBytes) views.push(nodes.subarray(at, at + hashBytes));
    this.#views[level] = views;
    return views;
  }
}

/** 0x01 ‖ left ‖ right, written over and over; hashing copies nothing. */
const pair = Buffer.alloc(1 + 2 * hashBytes, 1);

function levelAbove(level: Buffer): Buffer {
  const count = level.length / hashBytes;
  const above = Buffer.allocUnsafeSlow(Math.ceil(count / 2) * hashBytes);
  for (let at = 0; at < level.length; at += 2 * hashBytes) {
    const isPair = at + hashBytes < level.length;
    if (isPair) {
      level.copy(pair, 1, at, at + 2 * hashBytes);
      hashInto(above, at / 2, pair);
    } else level.copy(above, at / 2, at);
  }
  return above;
}

/** How a leaf hash is shown to belong to a root: RFC 9162 2.1.3.2, exact in every length. */
export interface Inclusion {
  readonly hash: Uint8Array;
  readonly proof: Proof;
  readonly root: Uint8Array;
  /** Number of leaves of the tree. */
  readonly size: number;
}

/** True when the leaf stands at its index in the tree of that root and size. False for anything malformed; never throws. */
export function isIncluded({ hash, proof, root, size }: Inclusion): boolean {
  if (!isPlace(proof.index, size) || hash.length !== hashBytes || root.length !== hashBytes) return false;
  const computed = rootAbove(Buffer.from(hash), proof, size);
  return computed?.equals(root) ?? false;
}

const isPlace = (index: number, size: number): boolean =>
  Number.isSafeInteger(size) && Number.isSafeInteger(index) && index >= 0 && index < size;

/** null when the path is longer or shorter than the tree is high, or holds something that is no hash. `node` is written over. */
function rootAbove(node: Buffer, { index, siblings }: Proof, size: number): Buffer | null {
  let [at, last, used] = [index, size - 1, 0];
  // Halved by division: a 64-bit size does not fit the bit operators.
  for (; last > 0; at = Math.floor(at / 2), last = Math.floor(last / 2)) {
    const isLeft = at % 2 === 0;
    if (isLeft && at === last) continue;
    const sibling = siblings[used];
    if (sibling?.length !== hashBytes) return null;
    used += 1;
    pair.set(isLeft ? node : sibling, 1);
    pair.set(isLeft ? sibling : node, 1 + hashBytes);
    hashInto(node, 0, pair);
  }
  return used === siblings.length ? node : null;
}
