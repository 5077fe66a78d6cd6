/** Scopes: leaves, order, roots, proofs, and the golden file that every implementation answers to. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { subjectByRule } from '../../../domain/batch/subjects.ts';
import { merkleRoot } from '../../../pki/audit/merkle.ts';
import {
  createScope,
  decodeProof,
  encodeProof,
  isIncluded,
  leafHash,
  maxLeaves,
  rootOfScope,
  type ScopeLeaf,
} from '../../../pki/quorum/index.ts';
import { Tree } from '../../../pki/quorum/tree.ts';
import { refusal } from '../support.ts';
import { describeVectors, readJsonVectors } from '../x509/vectors.ts';
import { bytes, goldenScopes, hex } from './support.ts';

const none = new Uint8Array();
const leaf = (subject: string, change: Partial<ScopeLeaf> = {}): ScopeLeaf => ({
  subject,
  kind: 'node.reboot',
  payloadSha256: none,
  ...change,
});
const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
const nodes = (count: number): ScopeLeaf[] => Array.from({ length: count }, (_, i) => leaf(`node_${i}`));

describe('the golden scopes', () => {
  for (const golden of goldenScopes.scopes) {
    it(`QUO-007 QUO-008 QUO-009 QUO-010 QUO-011 ${golden.name}`, () => {
      const leaves = golden.leaves.map((entry) => ({ ...entry, payloadSha256: bytes(entry.payloadSha256) }));
      assert.deepEqual(
        leaves.map((entry) => hex(leafHash(golden.batchId, entry))),
        golden.leafHashes,
      );
      const scope = createScope(golden.batchId, leaves);
      assert.deepEqual([hex(scope.root), scope.size], [golden.root, golden.size]);
      const proofs = scope.leaves.map(({ hash }, index) => ({ index, leaf: hex(hash), siblings: scope.proofOf(index).siblings.map(hex) }));
      assert.deepEqual(proofs, golden.proofs);
      for (const { index, leaf: hash, siblings } of golden.proofs)
        assert.ok(isIncluded({ hash: bytes(hash), proof: { index, siblings: siblings.map(bytes) }, root: scope.root, size: scope.size }));
    });
  }

  for (const { rule, nodeId, payload, subject } of goldenScopes.subjects)
    it(`QUO-028 ${rule} on ${nodeId} with ${JSON.stringify(payload)} is ${subject ?? 'refused'}`, () => {
      assert.equal(subjectByRule(rule, { nodeId, payload }), subject);
    });
});

describe('scopes', () => {
  it('QUO-006 equal leaves are one, and their order is that of their hashes', () => {
    const scope = createScope('b1', [leaf('node_1'), leaf('node_2'), leaf('node_1'), leaf('node_1', { kind: 'node.drain' })]);
    assert.equal(scope.size, 3);
    const order = scope.leaves.map(({ hash }) => hex(hash));
    assert.deepEqual(order, [...order].sort());
  });

  it('QUO-008 any order and any repetition gives the same root, and every leaf its proof', () => {
    const leaves = fc.uniqueArray(
      fc.tuple(fc.stringMatching(/^[a-z0-9]{1,6}$/), fc.constantFrom('node.reboot', 'bmc.power'), fc.boolean()),
      { minLength: 1, maxLength: 40 },
    );
    fc.assert(
      fc.property(leaves, fc.array(fc.nat()), (made, picks) => {
        const list = made.map(([subject, kind, bound]) => ({ subject, kind, payloadSha256: bound ? digest(subject) : none }));
        const scope = createScope('b1', list);
        const again = [...list, ...picks.map((pick) => list[pick % list.length] as ScopeLeaf)].toReversed();
        assert.deepEqual(rootOfScope('b1', again), { root: scope.root, size: scope.size });
        for (const [index, { hash }] of scope.leaves.entries()) {
          assert.equal(scope.indexOf(hash), index);
          assert.ok(isIncluded({ hash, proof: scope.proofOf(index), root: scope.root, size: scope.size }));
        }
      }),
      { numRuns: 200 },
    );
  });

  it('QUO-010 an odd node is promoted: every size from 1 to 70 has the root of RFC 6962 as the audit trail computes it apart', () => {
    for (let size = 1; size <= 70; size++) {
      const scope = createScope('b1', nodes(size));
      const inputs = scope.leaves.map(({ subject, kind }) => {
        const lp = (text: string): Buffer => Buffer.concat([bytes(text.length.toString(16).padStart(8, '0')), Buffer.from(text)]);
        return Buffer.concat([lp('b1'), lp(subject), lp(kind), Buffer.alloc(4)]);
      });
      // Its leaf hash is H(0x00 ‖ input): the same prefix, so the same leaves.
      assert.equal(hex(merkleRoot(inputs)), hex(scope.root), String(size));
    }
  });

  it('QUO-005 no changed, cut, longer or moved proof leads to the root', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.nat(), fc.nat(), (size, at, how) => {
        const scope = createScope('b1', nodes(size));
        const index = at % size;
        const { hash } = scope.leaves[index] as { hash: Buffer };
        const { siblings } = scope.proofOf(index);
        const flip = (list: readonly Uint8Array[], i: number): Uint8Array[] =>
          list.map((entry, j) => (i === j ? Uint8Array.from(entry, (byte, k) => (k === how % 32 ? byte ^ 1 : byte)) : entry));
        const refused = (change: object): void =>
          assert.equal(isIncluded({ hash, proof: { index, siblings }, root: scope.root, size, ...change }), false);
        refused({ proof: { index, siblings: [...siblings, hash] } });
        refused({ proof: { index, siblings: [hash, ...siblings] } });
        refused({ proof: { index: index + size, siblings } });
        refused({ proof: { index: -1, siblings } });
        refused({ proof: { index: index + 0.5, siblings } });
        refused({ size: 0 });
        refused({ size: Number.MAX_VALUE });
        refused({ hash: flip([hash], 0)[0] });
        refused({ hash: hash.subarray(1) });
        refused({ root: flip([scope.root], 0)[0] });
        refused({ root: scope.root.subarray(1) });
        if (siblings.length === 0) return;
        refused({ proof: { index, siblings: siblings.slice(1) } });
        refused({ proof: { index, siblings: flip(siblings, how % siblings.length) } });
        refused({ proof: { index, siblings: siblings.map((entry) => entry.subarray(1)) } });
      }),
      { numRuns: 300 },
    );
  });

  it('QUO-005 a sibling that is cut at its end does not borrow what the hash before it left behind', () => {
    const scope = createScope('b1', nodes(2));
    const { hash } = scope.leaves[0] as { hash: Buffer };
    const [sibling] = scope.proofOf(0).siblings as [Uint8Array];
    const judge = (siblings: readonly Uint8Array[]): boolean =>
      isIncluded({ hash, proof: { index: 0, siblings }, root: scope.root, size: 2 });
    assert.deepEqual(
      [judge([sibling]), judge([sibling.subarray(0, 31)]), judge([Buffer.concat([sibling, sibling])])],
      [true, false, false],
    );
  });

  it('QUO-009 an inner node is never a leaf: its two children as a payload hash to something else', () => {
    const scope = createScope('b1', nodes(2));
    assert.equal(
      isIncluded({ hash: scope.root, proof: { index: 0, siblings: [] }, root: scope.root, size: 1 }),
      true,
      'a root is the root of itself',
    );
    assert.equal(scope.indexOf(scope.root), -1);
    assert.notEqual(
      hex(scope.root),
      hex(
        createHash('sha256')
          .update(bytes('00'))
          .update((scope.leaves[0] as { hash: Buffer }).hash)
          .update((scope.leaves[1] as { hash: Buffer }).hash)
          .digest(),
      ),
    );
  });

  it('QUO-007 moving a byte from one field to the next changes the leaf: lengths are part of it', () => {
    const one = leafHash('b1', { subject: 'node_1', kind: '2node.reboot', payloadSha256: none });
    const other = leafHash('b1', { subject: 'node_12', kind: 'node.reboot', payloadSha256: none });
    assert.notEqual(hex(one), hex(other));
    assert.notEqual(hex(leafHash('b', leaf('1node'))), hex(leafHash('b1', leaf('node'))));
  });

  it('QUO-029 QUO-030 the same address behind another agent, and another address behind the same, are other leaves', () => {
    const power = (subject: string): string => hex(leafHash('b1', leaf(subject, { kind: 'bmc.power' })));
    assert.equal(new Set(['bmc:site_a/10.0.0.5', 'bmc:site_b/10.0.0.5', 'bmc:site_a/10.0.0.6'].map(power)).size, 3);
  });

  it('BAT-005 BAT-043 takes 50,000 leaves and neither one more nor none', function () {
    this.timeout(20_000);
    assert.equal(maxLeaves, 50_000);
    assert.equal(rootOfScope('b1', nodes(maxLeaves)).size, maxLeaves);
    assert.throws(
      () => rootOfScope('b1', nodes(maxLeaves + 1)),
      refusal('INVALID_INPUT', 'too-many-leaves', /at most 50000 leaves; split it/),
    );
    assert.throws(() => createScope('b1', []), refusal('INVALID_INPUT', 'empty-scope', /at least one leaf/));
  });

  it('BAT-005 stops at the bound: an endless list is not read to its end', () => {
    function* endless(): Generator<ScopeLeaf> {
      for (let i = 0; ; i++) yield leaf(`node_${i}`);
    }
    assert.throws(() => rootOfScope('b1', endless()), refusal('INVALID_INPUT', 'too-many-leaves', /./));
  });

  const bad: readonly [title: string, change: Partial<ScopeLeaf>, message: RegExp][] = [
    ['a subject with a Cyrillic letter', { subject: 'n\u043ede_1' }, /^subject "n\\u043ede_1" is not 1 to 512 printable ASCII/],
    ['a subject with a direction mark', { subject: 'node_1\u202e' }, /\\u202e" is not/],
    ['half of a surrogate pair, which UTF-8 cannot say', { subject: '\ud800' }, /\\ud800/],
    ['an empty subject', { subject: '' }, /subject "" is not/],
    ['a subject of 513 characters', { subject: 'x'.repeat(513) }, /is not 1 to 512/],
    ['a kind with a space', { kind: 'node reboot' }, /^kind "node reboot"/],
    ['a digest of 31 bytes', { payloadSha256: new Uint8Array(31) }, /payloadSha256 of node.reboot on node_1 has 31 bytes, not 32/],
  ];
  for (const [title, change, message] of bad)
    it(`QUO-026 refuses ${title} by name`, () => {
      assert.throws(() => createScope('b1', [leaf('node_0'), leaf('node_1', change)]), refusal('INVALID_INPUT', 'bad-leaf', message));
    });

  it('refuses a batch id that logs could not show', () => {
    for (const id of ['', 'b 1', 'b\u0000', 'b'.repeat(129)])
      assert.throws(() => createScope(id, nodes(1)), refusal('INVALID_INPUT', 'bad-batch-id', /1 to 128 printable/));
  });

  it('has no proof of a leaf that is not there', () => {
    for (const index of [-1, 3, 0.5, Number.NaN])
      assert.throws(
        () => createScope('b1', nodes(3)).proofOf(index),
        refusal('INVALID_INPUT', 'no-such-leaf', /no leaf .* in a scope of 3/),
      );
  });

  it('BAT-004 QUO-033 a stored proof reads back, and nothing else reads as one', () => {
    const scope = createScope('b1', nodes(21));
    for (let index = 0; index < 21; index++) {
      const proof = decodeProof(encodeProof(scope.proofOf(index)));
      assert.deepEqual([proof.index, proof.siblings.map(hex)], [index, scope.proofOf(index).siblings.map(hex)]);
    }
    const short = encodeProof({ index: 1, siblings: [new Uint8Array(31)] });
    const deep = encodeProof({ index: 1, siblings: Array.from({ length: 65 }, () => new Uint8Array(32)) });
    for (const wrong of [short, deep, bytes('ff'), bytes('08ffffffffffffffffff01')])
      assert.throws(() => decodeProof(wrong), refusal('MALFORMED', 'batch-proof', /no batch proof/));
  });
});

interface InclusionCase {
  readonly leafIdx: string;
  readonly treeSize: string;
  readonly root: string;
  readonly leafHash: string;
  readonly proof: readonly string[] | null;
  readonly desc: string;
  readonly wantErr: boolean;
}

describeVectors('merkle-rfc6962', ['merkle-rfc6962', 'known-roots.json'], () => {
  it('QUO-009 QUO-010 has the published roots and proofs for every size', () => {
    const { leafHashes, rootsBySize } = readJsonVectors('merkle-rfc6962', 'known-roots.json') as {
      leafHashes: string[];
      rootsBySize: string[];
    };
    assert.ok(leafHashes.length === 8 && rootsBySize.length === 9);
    for (let size = 1; size <= 8; size++) {
      const tree = new Tree(bytes(leafHashes.slice(0, size).join('')));
      assert.equal(hex(tree.root), rootsBySize[size]);
      for (let index = 0; index < size; index++)
        assert.ok(isIncluded({ hash: bytes(leafHashes[index] as string), proof: tree.proofOf(index), root: tree.root, size }));
    }
  });

  it('QUO-005 QUO-010 takes and refuses the inclusion proofs as published', () => {
    const cases = readJsonVectors('merkle-rfc6962', 'inclusion.json') as InclusionCase[];
    const decode = (text: string): Buffer => Buffer.from(text, 'base64');
    assert.ok(cases.length > 40);
    for (const { leafIdx, treeSize, root, leafHash: hash, proof, wantErr, desc } of cases) {
      const siblings = (proof ?? []).map(decode);
      const included = isIncluded({
        hash: decode(hash),
        proof: { index: Number(leafIdx), siblings },
        root: decode(root),
        size: Number(treeSize),
      });
      assert.equal(included, !wantErr, desc);
    }
  });
});
