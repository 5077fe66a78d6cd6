/**
 * The scope of a batch: a set of leaves in the order of their hashes, with its root (QUO-006 to QUO-010). Any order and any repetition
 * of the input gives the same root.
 */
import { create, toBinary } from '@bufbuild/protobuf';
import { maxLeaves } from '../../domain/batch/limits.ts';
import { ControlError } from '../../domain/errors.ts';
import { type BatchProof, BatchProofSchema, decodeMessage } from '../../proto/index.ts';
import { hashBytes, LeafHasher, type ScopeLeaf } from './leaf.ts';
import { type Proof, Tree } from './tree.ts';

export interface HashedLeaf extends ScopeLeaf {
  readonly hash: Buffer;
}

export interface Scope {
  readonly batchId: string;
  readonly root: Buffer;
  /** Distinct leaves. */
  readonly size: number;
  /** Ascending by hash; the index of a leaf is its place here. */
  readonly leaves: readonly HashedLeaf[];
  proofOf(index: number): Proof;
  /** -1 for a hash that is no leaf. */
  indexOf(hash: Uint8Array): number;
}

/**
 * @throws INVALID_INPUT: `empty-scope`, `too-many-leaves` (before the rest is read), `bad-leaf`, `bad-batch-id`
 */
export function createScope(batchId: string, leaves: Iterable<ScopeLeaf>): Scope {
  const sorted = sortedLeaves(batchId, leaves);
  const tree = treeOf(sorted);
  return Object.freeze({
    batchId,
    root: tree.root,
    size: sorted.length,
    leaves: sorted,
    proofOf(index: number): Proof {
      if (Number.isInteger(index) && index >= 0 && index < sorted.length) return tree.proofOf(index);
      throw new ControlError('INVALID_INPUT', `there is no leaf ${index} in a scope of ${sorted.length}`, {
        details: { reason: 'no-such-leaf' },
      });
    },
    indexOf: (hash: Uint8Array): number => findHash(sorted, hash),
  });
}

/** The root and the size alone: what an approver recomputes. Throws as createScope does. */
export function rootOfScope(batchId: string, leaves: Iterable<ScopeLeaf>): { readonly root: Buffer; readonly size: number } {
  const sorted = sortedLeaves(batchId, leaves);
  return { root: Buffer.from(treeOf(sorted).root), size: sorted.length };
}

const bad = (reason: string, message: string): ControlError<'INVALID_INPUT'> =>
  new ControlError('INVALID_INPUT', message, { details: { reason } });

function sortedLeaves(batchId: string, leaves: Iterable<ScopeLeaf>): readonly HashedLeaf[] {
  if (!/^[\x21-\x7e]{1,128}$/.test(batchId)) throw bad('bad-batch-id', 'a batch id is 1 to 128 printable ASCII characters without a space');
  const hasher = new LeafHasher(batchId);
  const hashed: HashedLeaf[] = [];
  for (const leaf of leaves) {
    if (hashed.length === maxLeaves) throw bad('too-many-leaves', `a batch has at most ${maxLeaves} leaves; split it`);
    const { subject, kind, payloadSha256 } = leaf;
    hashed.push({ subject, kind, payloadSha256, hash: hasher.hash(leaf) });
  }
  if (hashed.length === 0) throw bad('empty-scope', 'a batch has at least one leaf');
  return distinct(sortByHash(hashed));
}

/** 37 bits of the hash and 16 bits of index: a sort key that is a safe integer. */
const indexSpan = 2 ** 16;
const droppedBits = 2 ** 11;

/** By numeric keys, which sort without a comparison function; ties (one in a hundred scopes of 50,000) by the whole hash. */
function sortByHash(leaves: readonly HashedLeaf[]): HashedLeaf[] {
  const keys = Float64Array.from(leaves, ({ hash }, index) => Math.floor(hash.readUIntBE(0, 6) / droppedBits) * indexSpan + index).sort();
  const sorted = Array.from(keys, (key) => leaves[key % indexSpan] as HashedLeaf);
  let tied = false;
  for (let at = 1; at < keys.length && !tied; at += 1) tied = keyOf(keys, at) === keyOf(keys, at - 1);
  return tied ? sorted.sort((a, b) => Buffer.compare(a.hash, b.hash)) : sorted;
}

const keyOf = (keys: Float64Array, at: number): number => Math.floor((keys[at] as number) / indexSpan);

const distinct = (sorted: readonly HashedLeaf[]): readonly HashedLeaf[] =>
  sorted.filter(({ hash }, index) => index === 0 || !hash.equals((sorted[index - 1] as HashedLeaf).hash));

const treeOf = (sorted: readonly HashedLeaf[]): Tree => {
  const flat = Buffer.allocUnsafeSlow(sorted.length * hashBytes);
  for (const [index, { hash }] of sorted.entries()) hash.copy(flat, index * hashBytes);
  return new Tree(flat);
};

function findHash(sorted: readonly HashedLeaf[], hash: Uint8Array): number {
  let [low, high] = [0, sorted.length - 1];
  while (low <= high) {
    const middle = (low + high) >>> 1;
    const order = Buffer.compare((sorted[middle] as HashedLeaf).hash, hash);
    if (order === 0) return middle;
    if (order < 0) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

/** The bytes that are stored with a leaf and travel beside its command (BAT-004). */
export const encodeProof = ({ index, siblings }: Proof): Uint8Array =>
  toBinary(BatchProofSchema, create(BatchProofSchema, { index: BigInt(index), siblings: [...siblings] }));

/** null for a proof that no tree of ours has: an index above 2^53, a sibling that is no hash, more of them than 64 levels. */
export function parseProof({ index, siblings }: BatchProof): Proof | null {
  const counts = index <= BigInt(Number.MAX_SAFE_INTEGER) && siblings.length <= 64;
  return counts && siblings.every(({ length }) => length === hashBytes) ? { index: Number(index), siblings } : null;
}

/**
 * @throws MALFORMED (`batch-proof`)
 */
export function decodeProof(bytes: Uint8Array): Proof {
  const malformed = (cause?: unknown): ControlError<'MALFORMED'> =>
    new ControlError('MALFORMED', 'the bytes are no batch proof', {
      details: { reason: 'batch-proof' },
      ...(cause === undefined ? {} : { cause }),
    });
  let message: BatchProof;
  try {
    message = decodeMessage(BatchProofSchema, bytes, 'batchApproval');
  } catch (cause) {
    throw malformed(cause);
  }
  const proof = parseProof(message);
  if (proof === null) throw malformed();
  return proof;
}
