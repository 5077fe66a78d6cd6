/** Approver sets: their canonical bytes, what makes one good, and what lets one follow another. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  approverSetParts,
  problemsOfQuorum,
  quorumOf,
  signersOfSet,
  validateQuorum,
  verifyApproverSetChange,
} from '../../../pki/quorum/index.ts';
import {
  approverSetDigest,
  approverSetInput,
  buildTrustBundle,
  noQuorum,
  type QuorumFields,
  signTrustBundle,
  verifySignedTrustBundle,
} from '../../../pki/trust/index.ts';
import { signingInput } from '../../../proto/index.ts';
import { refusal } from '../support.ts';
import { alice, bob, bytes, carol, createApprover, dave, goldenQuorum, goldenSets, hex, setOf, signedSet, trustDomain } from './support.ts';

describe('the golden approver sets', () => {
  for (const golden of goldenSets.sets) {
    it(`QUO-042 QUO-043 APPR-005 ${golden.name}: bytes, digest and the signing input of its epoch`, () => {
      for (const signed of golden.signed) {
        const quorum = goldenQuorum(golden, signed.trustDomain);
        assert.equal(hex(approverSetInput(quorum)), golden.input);
        assert.equal(approverSetDigest(quorum), golden.sha256);
        assert.equal(
          hex(signingInput('approver-set', approverSetParts({ epoch: golden.epoch, quorum, trustDomain: signed.trustDomain }))),
          signed.signingInput,
        );
        assert.deepEqual(problemsOfQuorum(quorum), []);
      }
    });

    it(`APPR-005 APPR-006 ${golden.name}: signatures by another implementation, each for its own trust domain`, () => {
      const everybody: QuorumFields = {
        ...noQuorum,
        approverKeys: Object.values(goldenSets.keys).map(({ kid, spki }) => ({ kid, spki: bytes(spki) })),
      };
      const quorum = goldenQuorum(golden);
      const signers = (domain: string): readonly string[] =>
        signersOfSet(everybody, { epoch: golden.epoch, quorum, trustDomain: domain }, quorum.approverSetSignatures);
      assert.deepEqual(
        signers(trustDomain),
        golden.signed[0]?.signatures.map(({ kid }) => kid),
      );
      assert.deepEqual(signers('staging.example.com'), []);
    });
  }

  it('QUO-042 the order of the keys carries no meaning', () => {
    const keys = [alice, bob, carol, dave];
    fc.assert(
      fc.property(fc.shuffledSubarray(keys, { minLength: 4 }), (shuffled) => {
        assert.equal(approverSetDigest(setOf(shuffled, 2)), approverSetDigest(setOf(keys, 2)));
      }),
    );
  });

  it('DMN-022 APPR-001 every field of the set is in its bytes', () => {
    const set = setOf([alice, bob], 1, { tiers: [{ maxScopeSize: 5, threshold: 1 }] });
    const others: Partial<QuorumFields>[] = [
      { approverKeys: setOf([alice], 1).approverKeys },
      { approverThreshold: 2 },
      { tiers: [] },
      { tiers: [{ maxScopeSize: 6, threshold: 1 }] },
      { unbatchedDestructivePerHour: 1 },
    ];
    const digests = [set, ...others.map((change) => ({ ...set, ...change }))].map(approverSetDigest);
    assert.equal(new Set(digests).size, digests.length);
  });
});

describe('a good set', () => {
  const tier = (maxScopeSize: number, threshold: number) => ({ maxScopeSize, threshold });
  const good = setOf([alice, bob, carol], 2, { tiers: [tier(5, 1), tier(100, 2)], unbatchedDestructivePerHour: 3 });
  const foreign = createApprover();
  const p384 = bytes('3076301006072a8648ce3d020106052b8104002203620004' + '11'.repeat(96));

  it('QUO-054 is given back as it came; so is none at all', () => {
    assert.equal(validateQuorum(good), good);
    assert.equal(validateQuorum(noQuorum), noQuorum);
  });

  const cases: readonly [rule: string, title: string, change: Partial<QuorumFields>, message: RegExp][] = [
    [
      'QUO-055',
      'one key twice',
      { approverKeys: setOf([alice, alice], 1).approverKeys },
      /approver key [0-9a-f]{12} is listed more than once/,
    ],
    [
      'QUO-055',
      'a P-384 key',
      { approverKeys: [...good.approverKeys, { kid: foreign.kid, spki: p384 }] },
      /approver key 4 of 4 is not a P-256 public key/,
    ],
    [
      'QUO-055 H-09',
      'a kid of another key',
      { approverKeys: [...good.approverKeys, { kid: 'ab'.repeat(32), spki: foreign.spki }] },
      /approver key 4 of 4 has the id "abababababab", which is not/,
    ],
    [
      'QUO-056 QUO-061',
      'threshold 0',
      { approverThreshold: 0, tiers: [] },
      /threshold 0 is not a whole number from 1 to the number of keys, 3/,
    ],
    ['QUO-056 QUO-061', 'more than there are keys', { approverThreshold: 4, tiers: [] }, /threshold 4 is not/],
    ['QUO-061', 'half an approver', { approverThreshold: 1.5, tiers: [] }, /threshold 1.5 is not/],
    ['QUO-061', 'a tier that asks nobody', { tiers: [tier(5, 0)] }, /tier 5:0 has a threshold that is not a whole number from 1/],
    ['QUO-061', 'a tier that asks more than there are', { tiers: [tier(5, 4)] }, /tier 5:4 has a threshold/],
    ['QUO-062', 'a tier for nothing', { tiers: [tier(0, 1)] }, /tier 0:1 has a size that is not a whole number from 1/],
    ['QUO-063', 'tiers of one size', { tiers: [tier(5, 1), tier(5, 2)] }, /tier 5:2 does not come after tier 5: sizes must ascend/],
    ['QUO-063', 'tiers that descend', { tiers: [tier(10, 1), tier(5, 1)] }, /tier 5:1 does not come after tier 10/],
    [
      'QUO-064',
      'a larger scope that needs fewer',
      { tiers: [tier(5, 2), tier(10, 1)] },
      /tier 10:1 asks for less than tier 5: thresholds must not decrease/,
    ],
    ['QUO-065', 'a tier above the threshold', { tiers: [tier(5, 3)] }, /tier 5:3 asks for more than the threshold 2/],
    ['QUO-059', 'a negative allowance', { unbatchedDestructivePerHour: -1 }, /unbatchedDestructivePerHour -1 is not a whole number from 0/],
    [
      'QUO-059',
      'a threshold without keys',
      { approverKeys: [], tiers: [], unbatchedDestructivePerHour: 0 },
      /threshold 2 without approver keys/,
    ],
    [
      'QUO-059',
      'an allowance without keys',
      { approverKeys: [], tiers: [], approverThreshold: 0 },
      /unbatchedDestructivePerHour 3 without approver keys/,
    ],
    [
      'QUO-059',
      'tiers without keys',
      { approverKeys: [], approverThreshold: 0, unbatchedDestructivePerHour: 0 },
      /2 tier\(s\) without approver keys/,
    ],
  ];
  for (const [rule, title, change, message] of cases)
    it(`${rule} is not ${title}`, () => {
      assert.throws(() => validateQuorum({ ...good, ...change }), refusal('INVALID_CONFIG', 'approvers', message));
    });

  it('QUO-059 says everything that is wrong at once', () => {
    assert.equal(problemsOfQuorum({ ...good, approverThreshold: 9, unbatchedDestructivePerHour: 0.5, tiers: [tier(0, 1)] }).length, 3);
  });
});

describe('a set that follows another', () => {
  const from = setOf([alice, bob, carol], 2);
  const to = setOf([alice, bob, dave], 2);

  async function problem(
    by: readonly (typeof alice)[],
    change: { from?: QuorumFields; to?: QuorumFields; domain?: string } = {},
  ): Promise<string | null> {
    const next = change.to ?? to;
    const { approverSetSignatures } = await signedSet(next, 7, { by, domain: change.domain ?? trustDomain });
    return verifyApproverSetChange({ from: change.from ?? from, to: next, epoch: 7, signatures: approverSetSignatures, trustDomain })
      .problem;
  }

  it('H-10 is signed by the threshold of the old set and by its own', async () => {
    assert.equal(await problem([alice, bob]), null, 'two who are in both');
    assert.equal(await problem([alice, carol, dave]), null);
    assert.equal(await problem([alice, dave]), '1 of 2 approvers of the current set signed it');
    assert.equal(await problem([alice, carol]), '1 of 2 approvers of the new set itself signed it');
    assert.equal(await problem([alice, alice, dave, dave]), '1 of 2 approvers of the current set signed it');
  });

  it('APPR-003 APPR-006 for this epoch and this trust domain', async () => {
    assert.equal(await problem([alice, bob], { domain: 'staging.example.com' }), '0 of 2 approvers of the current set signed it');
    const { approverSetSignatures: signatures } = await signedSet(to, 7, { by: [alice, bob] });
    assert.match(verifyApproverSetChange({ from, to, epoch: 8, signatures, trustDomain }).problem ?? '', /^0 of 2/);
  });

  it('H-10 a first set proves possession, a removal needs the old approvers alone', async () => {
    assert.equal(await problem([alice, dave], { from: noQuorum }), null);
    assert.equal(await problem([alice], { from: noQuorum }), '1 of 2 approvers of the new set itself signed it');
    assert.equal(await problem([bob, carol], { to: noQuorum }), null);
    assert.equal(await problem([bob], { to: noQuorum }), '1 of 2 approvers of the current set signed it');
    assert.equal(await problem([], { from: noQuorum, to: noQuorum }), 'neither set has an approver');
  });

  it('DMN-023 a threshold of 0 admits no change, and no set that is not good follows', async () => {
    assert.match(
      (await problem([alice, bob], { from: { ...from, approverThreshold: 0 } })) ?? '',
      /threshold of the current set is 0: it admits no change/,
    );
    assert.match((await problem([alice, bob, carol], { to: { ...to, approverThreshold: 0 } })) ?? '', /threshold 0 is not a whole number/);
  });

  it('APPR-013 names who signed on either side', async () => {
    const { approverSetSignatures: signatures } = await signedSet(to, 7, { by: [alice, carol, dave] });
    const { byOld, byNew } = verifyApproverSetChange({ from, to, epoch: 7, signatures, trustDomain });
    assert.deepEqual(
      [byOld, byNew],
      [
        [alice.kid, carol.kid],
        [alice.kid, dave.kid],
      ],
    );
  });
});

describe('a set in a trust bundle', () => {
  it('QUO-049 QUO-050 travels under the JoinService key and reads back as it was', async () => {
    const quorum = await signedSet(
      setOf([alice, bob], 2, { tiers: [{ maxScopeSize: 5, threshold: 1 }], unbatchedDestructivePerHour: 2 }),
      3,
      { by: [alice, bob] },
    );
    const bundle = buildTrustBundle({ version: 4, trustDomain, roots: [], removed: [], quorum });
    const signed = await signTrustBundle(carol.signer, bundle);
    const read = quorumOf(verifySignedTrustBundle(signed, { joinKey: carol.spki, trustDomain }));
    assert.equal(approverSetDigest(read), approverSetDigest(quorum));
    assert.deepEqual([read.approverSetEpoch, read.approverSetSignatures.map(({ kid }) => kid)], [3n, [alice.kid, bob.kid]]);
    assert.throws(
      () => verifySignedTrustBundle(signed, { joinKey: dave.spki, trustDomain }),
      refusal('BAD_SIGNATURE', 'other-key', /names key/),
    );
  });
});
