/** The scope of the largest batch, and the bare hashing of its tree: what the figures about batches are held against. */
import { createHash, hash } from 'node:crypto';
import { maxLeaves, type ScopeLeaf } from '../../pki/quorum/index.ts';

const lengthPrefixed = (bytes: Uint8Array): Buffer => {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
};

export const rebootsOfAll = (): ScopeLeaf[] =>
  Array.from({ length: maxLeaves }, (_, i) => ({
    subject: `node-${i}`,
    kind: 'node.reboot',
    payloadSha256: createHash('sha256').update(String(i)).digest(),
  }));

export const leafInput = (batchId: string, { subject, kind, payloadSha256 }: ScopeLeaf): Buffer =>
  Buffer.concat([Buffer.from([0]), ...[Buffer.from(batchId), Buffer.from(subject), Buffer.from(kind), payloadSha256].map(lengthPrefixed)]);

/** Digests as bytes, as a tree needs them. */
export const digest = (input: Uint8Array): unknown => hash('sha256', input, 'buffer');

export const pairOfHashes = Buffer.alloc(65, 1);

/** Every leaf and every inner node, hashed once. */
export function bareHashing(batchId: string, leaves: readonly ScopeLeaf[]): () => void {
  const inputs = leaves.map((leaf) => leafInput(batchId, leaf));
  return () => {
    for (const input of inputs) digest(input);
    for (let i = 1; i < inputs.length; i += 1) digest(pairOfHashes);
  };
}
