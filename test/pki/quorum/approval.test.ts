/** What an approval is worth: who signed it, for what, and whether a command in hand is what they signed. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { signEnvelope } from '../../../pki/envelope/index.ts';
import { approvalParts } from '../../../pki/quorum/approval.ts';
import {
  countApprovers,
  countSigners,
  createScope,
  encodeProof,
  requiredApprovals,
  type ScopeLeaf,
  signApproval,
  type VerifyQuorumOptions,
  verifyQuorum,
} from '../../../pki/quorum/index.ts';
import { noQuorum } from '../../../pki/trust/index.ts';
import {
  type BatchApproval,
  BatchApprovalSchema,
  type BatchProof,
  BatchProofSchema,
  decodeMessage,
  type Signature,
  SignatureSchema,
  signingInput,
} from '../../../proto/index.ts';
import { describeVectors, readJsonVectors } from '../x509/vectors.ts';
import { type Approver, alice, bob, bytes, carol, goldenScopes, hex, malleated, mallory, setOf, trustDomain } from './support.ts';

const now = Date.UTC(2026, 0, 15, 12);
const notAfterMs = now + 3_600_000;
const batchId = 'bat_1';
const digest = createHash('sha256').update('a reboot').digest();
const quorum = setOf([alice, bob, carol], 2);
const reboot = { subject: 'node_1', kind: 'node.reboot', payloadSha256: digest };
const none = new Uint8Array();

const scopeOf = (...leaves: readonly ScopeLeaf[]): ReturnType<typeof createScope> => createScope(batchId, leaves);
const bound = scopeOf(reboot, { ...reboot, subject: 'node_2' }, { ...reboot, subject: 'node_3' });
const unbound = scopeOf({ ...reboot, payloadSha256: none }, { ...reboot, subject: 'node_2' });

type Scope = typeof bound;
const factsOf = (scope: Scope, change: object = {}) => ({
  batchId,
  root: scope.root,
  size: scope.size,
  notAfterMs,
  trustDomain,
  ...change,
});

async function approvalOf(scope: Scope, by: readonly Approver[], change: object = {}): Promise<BatchApproval> {
  const facts = factsOf(scope, change);
  const signatures = await Promise.all(by.map(({ signer }) => signApproval(signer, facts)));
  return create(BatchApprovalSchema, {
    batchId: facts.batchId,
    scopeRoot: facts.root,
    scopeSize: BigInt(facts.size),
    notAfterMs: BigInt(facts.notAfterMs),
    signatures,
  });
}

const proofOf = (scope: Scope, index: number): BatchProof =>
  decodeMessage(BatchProofSchema, encodeProof(scope.proofOf(index)), 'batchApproval');
const indexOf = (scope: Scope, leaf: ScopeLeaf): number =>
  scope.leaves.findIndex(({ subject, payloadSha256 }) => subject === leaf.subject && hex(payloadSha256) === hex(leaf.payloadSha256));

async function commandIn(scope: Scope, by: readonly Approver[] = [alice, bob], leaf: ScopeLeaf = reboot): Promise<VerifyQuorumOptions> {
  return {
    quorum,
    batchId,
    leaf: reboot,
    approval: await approvalOf(scope, by),
    proof: proofOf(scope, indexOf(scope, leaf)),
    trustDomain,
    now,
  };
}

const verdict = (options: VerifyQuorumOptions): string => {
  const judged = verifyQuorum(options);
  return judged.ok ? 'ok' : `${judged.reason}: ${judged.detail}`;
};

describe('the golden approvals', () => {
  for (const golden of goldenScopes.approvals) {
    const facts = { ...golden, root: bytes(golden.root) };
    const set = { ...noQuorum, approverKeys: [{ kid: goldenScopes.kid, spki: bytes(goldenScopes.spki) }], approverThreshold: 1 };
    const count = (signature: string, change: object = {}) =>
      countApprovers({ quorum: set, facts: { ...facts, ...change }, signatures: [{ kid: goldenScopes.kid, sig: bytes(signature) }] });

    it(`QUO-044 QUO-045 ${golden.batchId} of ${golden.trustDomain}: the signed bytes, and a signature by another implementation`, () => {
      assert.equal(hex(signingInput('batch-approval', approvalParts(facts))), golden.input);
      assert.ok(golden.input.endsWith(hex(Buffer.from(golden.trustDomain))), 'the trust domain is the last part');
      assert.deepEqual(count(golden.signature), { kids: [goldenScopes.kid], refused: [] });
    });

    it(`H-09 ${golden.batchId} of ${golden.trustDomain}: (r, n − s) is an approval of the same key`, () => {
      assert.notEqual(golden.malleated, golden.signature);
      assert.deepEqual(count(golden.malleated).kids, [goldenScopes.kid]);
    });

    it(`QUO-046 ${golden.batchId} of ${golden.trustDomain}: counts for no other deployment`, () => {
      assert.deepEqual(count(golden.signature, { trustDomain: 'other.example.com' }), {
        kids: [],
        refused: [{ kid: goldenScopes.kid, reason: 'bad-signature' }],
      });
    });
  }
});

describe('counting approvers', () => {
  const facts = factsOf(bound);
  const sign = (approver: Approver): Promise<Signature> => signApproval(approver.signer, facts);

  it('DMN-008 H-09 C56 one approver counts once: repeated, malleated, under another kid', async () => {
    const signature = await sign(alice);
    const signatures = [signature, signature, malleated(signature), await sign(alice), { ...signature, kid: bob.kid }];
    const { kids, refused } = countApprovers({ quorum, facts, signatures });
    assert.deepEqual(kids, [alice.kid]);
    assert.deepEqual(
      refused.map(({ reason }) => reason),
      ['duplicate', 'duplicate', 'duplicate', 'bad-signature'],
    );
  });

  it('DMN-007 QUO-071 a kid that is not the SHA-256 of its key, or names no key of the set, counts for nobody', async () => {
    const signature = await sign(alice);
    const twice = {
      ...quorum,
      approverKeys: [...quorum.approverKeys, { kid: 'f'.repeat(64), spki: alice.spki }, { kid: alice.kid.toUpperCase(), spki: alice.spki }],
    };
    const signatures = [
      signature,
      { ...signature, kid: 'f'.repeat(64) },
      { ...signature, kid: alice.kid.toUpperCase() },
      await sign(mallory),
    ];
    const { kids, refused } = countApprovers({ quorum: twice, facts, signatures });
    assert.deepEqual(kids, [alice.kid]);
    assert.deepEqual(
      refused.map(({ reason }) => reason),
      ['bad-kid', 'bad-kid', 'unknown-key'],
    );
  });

  it('H-09 C56 a compressed point, or a key with trailing bytes, is not a second key of the same approver', async () => {
    const point = Buffer.from(alice.spki.subarray(26));
    const compressed = Buffer.concat([
      bytes('3039301306072a8648ce3d020106082a8648ce3d030107032200'),
      Buffer.from([2 + ((point[64] as number) & 1)]),
      point.subarray(1, 33),
    ]);
    const longer = Buffer.concat([alice.spki, Buffer.from([0])]);
    const kidOfBytes = (spki: Uint8Array): string => createHash('sha256').update(spki).digest('hex');
    const loose = [compressed, longer].map((spki) => ({ kid: kidOfBytes(spki), spki }));
    const signature = await sign(alice);
    const { kids } = countApprovers({
      quorum: { ...quorum, approverKeys: [...quorum.approverKeys, ...loose] },
      facts,
      signatures: [signature, ...loose.map(({ kid }) => ({ ...signature, kid }))],
    });
    assert.deepEqual(kids, [alice.kid]);
  });

  it('DMN-008 a signature that does not verify spoils nothing, not even the good one of the same key behind it', async () => {
    const good = await sign(alice);
    const broken = { ...good, sig: Uint8Array.from(good.sig, (byte, i) => (i === 40 ? byte ^ 1 : byte)) };
    const short = { ...good, sig: good.sig.subarray(1) };
    const { kids, refused } = countApprovers({ quorum, facts, signatures: [broken, short, await sign(mallory), good, await sign(bob)] });
    assert.deepEqual(kids, [alice.kid, bob.kid]);
    assert.deepEqual(
      refused.map(({ reason }) => reason),
      ['bad-signature', 'bad-signature', 'unknown-key'],
    );
  });

  it('DMN-008 a pile of signatures that do not verify costs four tries a key, and no more', async () => {
    const good = await sign(alice);
    const broken = { ...good, sig: Uint8Array.from(good.sig, (byte, i) => (i === 40 ? byte ^ 1 : byte)) };
    const behind = (count: number): number =>
      countApprovers({ quorum, facts, signatures: [...Array.from({ length: count }, () => broken), good] }).kids.length;
    assert.deepEqual([behind(3), behind(4)], [1, 0]);
  });

  it('QUO-044 a signature over the same parts under another purpose is none', async () => {
    const other = await signEnvelope(alice.signer, 'rotation-override', approvalParts(facts));
    assert.deepEqual(countApprovers({ quorum, facts, signatures: [other] }).kids, []);
  });

  it('QUO-003 what is signed is all of it: no other batch, root, size or end', async () => {
    const signatures = [await sign(alice)];
    for (const change of [{ batchId: 'bat_2' }, { root: unbound.root }, { size: 4 }, { notAfterMs: notAfterMs + 1 }])
      assert.deepEqual(countApprovers({ quorum, facts: { ...facts, ...change }, signatures }).kids, [], JSON.stringify(change));
  });

  it('keys of a list that somebody can change are read again each time', async () => {
    const keys = [{ kid: alice.kid, spki: alice.spki }];
    const open = { ...quorum, approverKeys: keys };
    const signatures = [await sign(alice), await sign(bob)];
    assert.deepEqual(countApprovers({ quorum: open, facts, signatures }).kids, [alice.kid]);
    keys[0] = { kid: bob.kid, spki: bob.spki };
    assert.deepEqual(countApprovers({ quorum: open, facts, signatures }).kids, [bob.kid]);
  });
});

describe('how many approvals', () => {
  const tiers = [
    { maxScopeSize: 5, threshold: 1 },
    { maxScopeSize: 100, threshold: 2 },
  ];
  const required = (size: number, change: object = {}): number =>
    requiredApprovals(setOf([alice, bob, carol], 3, { tiers, ...change }), size);

  it('QUO-057 QUO-065 DMN-005 A-PKI-49 the first tier that is large enough, above every tier the threshold', () => {
    assert.deepEqual(
      [1, 5, 6, 100, 101, 50_000].map((size) => required(size)),
      [1, 1, 2, 2, 3, 3],
    );
    assert.deepEqual(
      [5, 6].map((size) => required(size, { tiers: [tiers[0]], approverThreshold: 2 })),
      [1, 2],
    );
    assert.equal(required(5, { tiers: tiers.toReversed() }), 1, 'whatever their order');
  });

  it('DMN-006 BAT-007 never fewer than one with keys, none without', () => {
    assert.equal(required(6, { tiers: [], approverThreshold: 0 }), 1);
    assert.equal(required(1, { tiers: [{ maxScopeSize: 9, threshold: 0 }] }), 1);
    assert.equal(requiredApprovals(noQuorum, 7), 0);
  });
});

describe('the verdict on a command', () => {
  it('QUO-001 QUO-003 DMN-004 k distinct approvers admit it, k − 1 do not', async () => {
    const command = await commandIn(bound);
    const judged = verifyQuorum(command);
    assert.deepEqual(judged, { ok: true, leafHash: hex((bound.leaves[indexOf(bound, reboot)] as { hash: Buffer }).hash), notAfterMs });
    assert.equal(verdict(await commandIn(bound, [alice])), 'too-few-approvals: 1 of 2 approvals for a scope of 3');
    assert.equal(verdict(await commandIn(bound, [alice, alice, mallory])), 'too-few-approvals: 1 of 2 approvals for a scope of 3');
  });

  it('DMN-006 a set with threshold 0 still asks for one', async () => {
    assert.equal(
      verdict({ ...(await commandIn(bound, [])), quorum: { ...quorum, approverThreshold: 0 } }),
      'too-few-approvals: 0 of 1 approvals for a scope of 3',
    );
  });

  it('QUO-012 a bound leaf admits its payload alone', async () => {
    const other = { ...reboot, payloadSha256: createHash('sha256').update('a wipe').digest() };
    assert.match(verdict({ ...(await commandIn(bound)), leaf: other }), /^not-in-scope: node.reboot on node_1 is not the operation/);
  });

  it('QUO-013 QUO-014 A-PKI-45 an unbound leaf admits any payload of its kind and subject, and names itself', async () => {
    const command = await commandIn(unbound, [alice, bob], { ...reboot, payloadSha256: none });
    const leaf = { ...reboot, payloadSha256: createHash('sha256').update('another').digest() };
    const judged = [verifyQuorum(command), verifyQuorum({ ...command, leaf })].map((one) => (one.ok ? one.leafHash : one.reason));
    const expected = hex((unbound.leaves[indexOf(unbound, { ...reboot, payloadSha256: none })] as { hash: Buffer }).hash);
    assert.deepEqual(judged, [expected, expected]);
  });

  it('DMN-035 a write is admitted by a bound leaf only', async () => {
    const unboundLeaf = await commandIn(unbound, [alice, bob], { ...reboot, payloadSha256: none });
    assert.match(verdict({ ...unboundLeaf, boundOnly: true }), /^unbound-write: node.reboot on node_1 needs a leaf that is bound/);
    assert.equal(verdict({ ...(await commandIn(bound)), boundOnly: true }), 'ok');
  });

  it('QUO-005 DMN-010 DMN-011 every way to be outside of what was approved has its reason', async () => {
    const command = await commandIn(bound);
    const approval = command.approval as BatchApproval;
    const proof = command.proof as BatchProof;
    const cases: readonly [object, RegExp][] = [
      [{ approval: undefined }, /^no-approval: batch bat_1 comes without its approval/],
      [{ approval: { ...approval, scopeRoot: approval.scopeRoot.subarray(1) } }, /^approval-malformed: the root has 31 bytes, not 32/],
      [{ approval: { ...approval, scopeSize: 0n } }, /^approval-malformed: a scope has 1 to 50000 leaves, not 0/],
      [{ approval: { ...approval, scopeSize: 2n ** 63n } }, /^approval-malformed: .*not 9223372036854775808/],
      [{ approval: { ...approval, notAfterMs: 2n ** 64n - 1n } }, /^approval-malformed: no time is/],
      [{ approval: { ...approval, batchId: 'bat_2' } }, /^batch-differs/],
      [{ batchId: 'bat_2' }, /^batch-differs: the approval is of another batch than the command/],
      [{ now: notAfterMs + 1 }, /^approval-expired: the approval ended at 2026-01-15T13:00:00Z/],
      [{ approval: { ...approval, notAfterMs: 0n } }, /^approval-expired/],
      [{ proof: undefined }, /^no-proof: the command of batch bat_1 comes without its proof/],
      [{ proof: { ...proof, index: 3n } }, /^proof-malformed: the proof is of no leaf in a scope of 3/],
      [{ proof: { ...proof, index: 2n ** 64n - 1n } }, /^proof-malformed/],
      [{ proof: { ...proof, siblings: [none] } }, /^proof-malformed/],
      [{ proof: proofOf(bound, (indexOf(bound, reboot) + 1) % 3) }, /^not-in-scope/],
      [{ leaf: { ...reboot, subject: 'node_2' } }, /^not-in-scope: node.reboot on node_2 is not/],
      [{ leaf: { ...reboot, kind: 'node.drain' } }, /^not-in-scope: node.drain on node_1 is not/],
      [{ leaf: { ...reboot, payloadSha256: none } }, /^not-in-scope: the command has no payload digest/],
      [{ leaf: { ...reboot, subject: 'n\u043ede_1' } }, /^not-in-scope: subject/],
      [{ approval: { ...approval, scopeRoot: unbound.root } }, /^not-in-scope/],
      [{ approval: { ...approval, scopeSize: 4n } }, /^(not-in-scope|too-few-approvals)/],
      [{ approval: { ...approval, notAfterMs: approval.notAfterMs + 1n } }, /^too-few-approvals: 0 of 2/],
      [{ trustDomain: 'staging.example.com' }, /^too-few-approvals: 0 of 2/],
      [{ approval: { ...approval, signatures: [] } }, /^too-few-approvals: 0 of 2/],
      [{ quorum: setOf([alice, carol], 2) }, /^too-few-approvals: 1 of 2/],
    ];
    assert.equal(verdict(command), 'ok');
    for (const [change, expected] of cases) assert.match(verdict({ ...command, ...change }), expected);
  });

  it('DMN-009 it holds up to its end and not after it', async () => {
    const command = await commandIn(bound);
    assert.deepEqual(
      [notAfterMs - 1, notAfterMs, notAfterMs + 1].map((at) => verifyQuorum({ ...command, now: at }).ok),
      [true, true, false],
    );
  });

  it('DMN-013 the used leaf has one name, wherever it stands: another tree of the same batch names the same hash', async () => {
    const larger = scopeOf(reboot, ...Array.from({ length: 30 }, (_, i) => ({ ...reboot, subject: `node_${20 + i}` })));
    const judged = [await commandIn(bound), await commandIn(larger)].map((one) => verifyQuorum(one));
    assert.ok(judged.every(({ ok }) => ok));
    assert.notEqual(indexOf(bound, reboot), indexOf(larger, reboot));
    assert.equal(judged[0]?.ok && judged[0].leafHash, judged[1]?.ok && judged[1].leafHash);
  });

  it('never throws, whatever the wire says', async () => {
    const command = await commandIn(bound);
    const wild = fc.record({
      batchId: fc.string(),
      scopeRoot: fc.uint8Array({ maxLength: 40 }),
      scopeSize: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
      notAfterMs: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
      signatures: fc.array(
        fc.record({ kid: fc.oneof(fc.string(), fc.constantFrom(alice.kid, bob.kid)), sig: fc.uint8Array({ maxLength: 70 }) }),
        { maxLength: 5 },
      ),
    });
    const proof = fc.record({
      index: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
      siblings: fc.array(fc.uint8Array({ maxLength: 33 }), { maxLength: 70 }),
    });
    fc.assert(
      fc.property(wild, proof, fc.string(), (approval, path, subject) => {
        const judged = verifyQuorum({
          ...command,
          leaf: { ...reboot, subject },
          approval: create(BatchApprovalSchema, {
            ...approval,
            signatures: approval.signatures.map((one) => create(SignatureSchema, one)),
          }),
          proof: create(BatchProofSchema, path),
        });
        assert.equal(judged.ok, false);
      }),
    );
  });
});

describeVectors('wycheproof ECDSA', ['wycheproof', 'ecdsa_secp256r1_sha256_p1363_test.json'], () => {
  it('H-09 every valid signature has a second form, and both are one approver', () => {
    const { testGroups } = readJsonVectors('wycheproof', 'ecdsa_secp256r1_sha256_p1363_test.json') as {
      testGroups: readonly {
        readonly publicKeyDer: string;
        readonly tests: readonly { readonly msg: string; readonly sig: string; readonly result: string }[];
      }[];
    };
    let valid = 0;
    for (const { publicKeyDer, tests } of testGroups) {
      const spki = bytes(publicKeyDer);
      const kid = createHash('sha256').update(spki).digest('hex');
      const set = { ...noQuorum, approverKeys: [{ kid, spki }], approverThreshold: 2 };
      for (const { msg, sig, result } of tests) {
        if (result !== 'valid') continue;
        valid += 1;
        const signature = { kid, sig: bytes(sig) };
        const { kids, refused } = countSigners({ quorum: set, input: bytes(msg), signatures: [malleated(signature), signature] });
        assert.deepEqual([kids, refused], [[kid], [{ kid, reason: 'duplicate' }]]);
        assert.deepEqual(countSigners({ quorum: set, input: bytes(msg), signatures: [signature] }).kids, [kid]);
      }
    }
    assert.ok(valid > 100, String(valid));
  });
});
