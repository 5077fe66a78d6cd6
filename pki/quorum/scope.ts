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
  const { sorted, flat } = hashLeaves(batchId, leaves);
  const hashed = sorted.map(({ subject, kind, payloadSha256 }, index) => ({ subject, kind, payloadSha256, hash: hashAt(flat, index) }));
  const tree = new Tree(flat);
  return Object.freeze({
    batchId,
    root: tree.root,
    size: hashed.length,
    leaves: hashed,
    proofOf(index: number): Proof {
      if (Number.isInteger(index) && index >= 0 && index < hashed.length) return tree.proofOf(index);
      throw bad('no-such-leaf', `there is no leaf ${index} in a scope of ${hashed.length}`);
    },
    indexOf: (hash: Uint8Array): number => findHash(hashed, hash),
  });
}

/** The root and the size alone: what an approver recomputes. Throws as createScope does. */
export function rootOfScope(batchId: string, leaves: Iterable<ScopeLeaf>): { readonly root: Buffer; readonly size: number } {
  const { sorted, flat } = hashLeaves(batchId, leaves);
  return { root: Buffer.from(new Tree(flat).root), size: sorted.length };
}

const bad = (reason: string, message: string): ControlError<'INVALID_INPUT'> =>
  new ControlError('INVALID_INPUT', message, { details: { reason } });

interface HashedLeaves {
  /** Distinct, ascending by hash. */
  readonly sorted: readonly ScopeLeaf[];
  /** Their hashes, one behind the other. */
  readonly flat: Buffer;
}

function hashLeaves(batchId: string, leaves: Iterable<ScopeLeaf>): HashedLeaves {
  if (!/^[\x21-\x7e]{1,128}$/.test(batchId)) throw bad('bad-batch-id', 'a batch id is 1 to 128 printable ASCII characters without a space');
  const hasher = new LeafHasher(batchId);
  const read: ScopeLeaf[] = [];
  let hashes: Buffer = Buffer.allocUnsafeSlow(1_024 * hashBytes);
  for (const leaf of leaves) {
    if (read.length === maxLeaves) throw bad('too-many-leaves', `a batch has at most ${maxLeaves} leaves; split it`);
    const at = read.length * hashBytes;
    if (at === hashes.length) hashes = grown(hashes);
    hasher.hashInto(hashes, at, leaf);
    read.push(leaf);
  }
  if (read.length === 0) throw bad('empty-scope', 'a batch has at least one leaf');
  return inOrder(read, hashes);
}

function grown(hashes: Buffer): Buffer {
  const larger = Buffer.allocUnsafeSlow(2 * hashes.length);
  hashes.copy(larger);
  return larger;
}

/** 37 bits of the hash and 16 bits of index: a sort key that is a safe integer. */
const indexSpan = 2 ** 16;
const droppedBits = 2 ** 11;

/** By numeric keys, which sort without a comparison function; ties (repeated leaves, and one scope of 50,000 in a hundred) by the hashes. */
function inOrder(read: readonly ScopeLeaf[], hashes: Buffer): HashedLeaves {
  const keys = new Float64Array(read.length);
  for (let i = 0; i < keys.length; i += 1) keys[i] = Math.floor(hashes.readUIntBE(i * hashBytes, 6) / droppedBits) * indexSpan + i;
  keys.sort();
  const tied = holdsTies(keys);
  const order = new Uint32Array(keys.length);
  for (let i = 0; i < keys.length; i += 1) order[i] = (keys[i] as number) % indexSpan;
  return tied
    ? distinctOf(
        read,
        hashes,
        order.sort((a, b) => compareAt(hashes, a, b)),
      )
    : gather(read, hashes, order);
}

/** Equal leaves are one: of neighbours with one hash the first stays. */
const distinctOf = (read: readonly ScopeLeaf[], hashes: Buffer, order: Uint32Array): HashedLeaves =>
  gather(
    read,
    hashes,
    order.filter((index, place) => place === 0 || compareAt(hashes, index, order[place - 1] as number) !== 0),
  );

function gather(read: readonly ScopeLeaf[], hashes: Buffer, order: Uint32Array): HashedLeaves {
  const flat = Buffer.allocUnsafeSlow(order.length * hashBytes);
  const sorted: ScopeLeaf[] = [];
  for (let place = 0; place < order.length; place += 1) {
    const index = order[place] as number;
    hashes.copy(flat, place * hashBytes, index * hashBytes, (index + 1) * hashBytes);
    sorted.push(read[index] as ScopeLeaf);
  }
  return { sorted, flat };
}

function holdsTies(sortedKeys: Float64Array): boolean {
  const prefix = (at: number): number => Math.floor((sortedKeys[at] as number) / indexSpan);
  for (let at = 1; at < sortedKeys.length; at += 1) if (prefix(at) === prefix(at - 1)) return true;
  return false;
}

const compareAt = (hashes: Buffer, a: number, b: number): number =>
  hashes.compare(hashes, b * hashBytes, (b + 1) * hashBytes, a * hashBytes, (a + 1) * hashBytes);

const hashAt = (flat: Buffer, index: number): Buffer => flat.subarray(index * hashBytes, (index + 1) * hashBytes);

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
