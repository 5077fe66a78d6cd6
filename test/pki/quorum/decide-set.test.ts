/** Which approver set a machine holds after it was offered a bundle: the rule, as a table and as a walk. */
import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { decideApproverSet, type HeldSet, quorumOf, type SetDecision } from '../../../pki/quorum/index.ts';
import {
  acceptTrustBundle,
  approverSetDigest,
  buildTrustBundle,
  type HeldTrust,
  noQuorum,
  type QuorumFields,
} from '../../../pki/trust/index.ts';
import { ApproverSetChangeSchema, type TrustBundle, TrustBundleSchema } from '../../../proto/index.ts';
import { now, sharedBundle } from '../support.ts';
import { describeVectors, readJsonVectors } from '../x509/vectors.ts';
import { type Approver, alice, bob, carol, createApprover, dave, malleated, mallory, setOf, signedSet, trustDomain } from './support.ts';

/** A bundle that offers a set, after the changes that led to it. */
const offer = (
  quorum: QuorumFields,
  changes: readonly QuorumFields[] = [],
  rest: { version?: number; roots?: readonly Uint8Array[] } = {},
): TrustBundle => {
  const bundle = buildTrustBundle({ version: rest.version ?? 2, trustDomain, roots: rest.roots ?? [], removed: [], quorum });
  return create(TrustBundleSchema, {
    ...bundle,
    approverSetChanges: changes.map((change) =>
      create(ApproverSetChangeSchema, {
        epoch: BigInt(change.approverSetEpoch),
        keys: change.approverKeys.map(({ kid, spki }) => ({ kid, spkiDer: spki })),
        threshold: change.approverThreshold,
        tiers: change.tiers.map((tier) => ({ ...tier })),
        unbatchedDestructivePerHour: change.unbatchedDestructivePerHour,
        signatures: change.approverSetSignatures.map((one) => ({ ...one })),
      }),
    ),
  });
};

const holding = (quorum: QuorumFields, epoch: number): HeldSet => ({ quorum: quorum.approverKeys.length === 0 ? null : quorum, epoch });
const nothing: HeldSet = { quorum: null, epoch: 0 };

const S = setOf([alice, bob, carol], 2);
const T = setOf([alice, bob, dave], 2);

/** keep, the reason, or which set at which epoch. */
function told(decision: SetDecision): string {
  if (decision.kind === 'keep') return 'keep';
  if (decision.kind === 'refuse') return decision.reason;
  const sets: readonly [string, QuorumFields][] = [
    ['S', S],
    ['T', T],
    ['none', noQuorum],
  ];
  const name = sets.find(([, set]) => approverSetDigest(set) === approverSetDigest(decision.quorum))?.[0] ?? 'other';
  return `${name}@${decision.epoch}`;
}

interface Around {
  readonly changes?: readonly QuorumFields[];
  readonly pin?: string;
  readonly trustDomain?: string;
}

const decide = (held: HeldSet, quorum: QuorumFields, { changes, ...options }: Around = {}): string =>
  told(decideApproverSet(held, offer(quorum, changes), { trustDomain, ...options }));

describe('the set a machine takes', () => {
  const signers: readonly [string, readonly Approver[], enough: boolean][] = [
    ['nobody', [], false],
    ['one of them', [alice], false],
    ['one of them, twice', [alice, alice], false],
    ['one of them and a stranger', [alice, mallory], false],
    ['only approvers of the new set', [dave, alice], false],
    ['two of them', [bob, carol], true],
    ['all of them', [alice, bob, carol], true],
    ['two of them and a stranger', [alice, mallory, carol], true],
  ];

  for (const [title, by, enough] of signers)
    it(`APPR-008 APPR-012 APPR-014 DMN-022 a change signed by ${title}`, async () => {
      for (const epoch of [6, 7, 4, 5]) {
        const expected = epoch <= 5 ? 'stale-epoch' : enough ? `T@${epoch}` : 'approver-set-unsigned';
        assert.equal(decide(holding(S, 5), await signedSet(T, epoch, { by })), expected, `epoch ${epoch}`);
      }
    });

  for (const [title, by, enough] of signers)
    it(`APPR-009 APPR-011 A-PKI-18 the same set signed by ${title}: moved or kept, never refused`, async () => {
      for (const epoch of [4, 5, 6]) {
        const expected = epoch > 5 && enough ? `S@${epoch}` : 'keep';
        assert.equal(decide(holding(S, 5), await signedSet(S, epoch, { by })), expected, `epoch ${epoch}`);
      }
    });

  const changes: readonly [string, QuorumFields][] = [
    ['a key more', setOf([alice, bob, carol, dave], 2)],
    ['a key less', setOf([alice, bob], 2)],
    ['another threshold', setOf([alice, bob, carol], 1)],
    ['a tier', { ...S, tiers: [{ maxScopeSize: 5, threshold: 1 }] }],
    ['another allowance', { ...S, unbatchedDestructivePerHour: 1 }],
    ['the removal of the quorum', noQuorum],
  ];
  for (const [title, set] of changes)
    it(`DMN-022 APPR-001 APPR-002 ${title} needs the held approvers; the JoinService's word alone changes nothing`, async () => {
      assert.equal(decide(holding(S, 1), await signedSet(set, 2)), 'approver-set-unsigned');
      assert.notEqual(decide(holding(S, 1), await signedSet(set, 2, { by: [alice, bob] })), 'approver-set-unsigned');
    });

  it('DMN-023 a held threshold of 0 admits no change, whoever signed', async () => {
    assert.equal(
      decide(holding({ ...S, approverThreshold: 0 }, 1), await signedSet(T, 2, { by: [alice, bob, carol] })),
      'approver-set-unsigned',
    );
  });

  it('APPR-003 APPR-006 signatures for another epoch or another deployment count for nothing', async () => {
    const moved = { ...(await signedSet(T, 2, { by: [alice, bob] })), approverSetEpoch: 3 };
    assert.equal(decide(holding(S, 1), moved), 'approver-set-unsigned');
    assert.equal(
      decide(holding(S, 1), await signedSet(T, 2, { by: [alice, bob], domain: 'staging.example.com' })),
      'approver-set-unsigned',
    );
    assert.equal(
      decide(holding(S, 1), await signedSet(T, 2, { by: [alice, bob] }), { trustDomain: 'staging.example.com' }),
      'approver-set-unsigned',
    );
  });

  it('H-09 the other form of a signature is not a second approver', async () => {
    const once = await signedSet(T, 2, { by: [alice] });
    const twice = { ...once, approverSetSignatures: [...once.approverSetSignatures, ...once.approverSetSignatures.map(malleated)] };
    assert.equal(decide(holding(S, 1), twice), 'approver-set-unsigned');
    const other = { ...(await signedSet(T, 2, { by: [alice, bob] })) };
    assert.equal(decide(holding(S, 1), { ...other, approverSetSignatures: other.approverSetSignatures.map(malleated) }), 'T@2');
  });

  it('APPR-010 a set that was replaced, with its genuine signatures, is stale when the machine went on', async () => {
    const T2 = await signedSet(T, 2, { by: [alice, bob] });
    const S3 = await signedSet(S, 3, { by: [alice, bob] });
    assert.equal(decide(holding(S, 1), S3), 'S@3', 'it missed T@2');
    assert.equal(decide(holding(S, 3), T2), 'stale-epoch');
  });

  it('APPR-013 signatures of the old set and of the new move both kinds of machine to the new epoch', async () => {
    const mixed = await signedSet(T, 6, { by: [alice, carol, dave] });
    assert.deepEqual([decide(holding(S, 5), mixed), decide(holding(T, 4), mixed)], ['T@6', 'T@6']);
  });

  it('a set that could not be published is not taken even when it is signed: the held one stays', async () => {
    const broken = await signedSet({ ...T, approverThreshold: 0 }, 2, { by: [alice, bob] });
    assert.equal(decide(holding(S, 1), broken), 'malformed-set');
    assert.equal(decide(holding(S, 1), { ...T, approverSetEpoch: 2n ** 60n }), 'malformed-set');
  });
});

describe('the first set', () => {
  it('QUO-052 APPR-019 DMN-026 is taken as it comes', async () => {
    assert.equal(decide(nothing, await signedSet(S, 1)), 'S@1');
    assert.equal(decide(nothing, await signedSet(S, 0)), 'S@0', 'a set without an epoch binds as well');
    assert.equal(decide(nothing, noQuorum), 'keep');
  });

  it('QUO-053 and then nothing changes it without its approvers', async () => {
    assert.equal(decide(holding(S, 1), await signedSet(T, 2)), 'approver-set-unsigned');
  });

  it('APPR-015 APPR-016 DMN-026 after a signed removal at 3 the epoch stays: a set at 3 is stale, one at 4 is taken', async () => {
    const removal = await signedSet(noQuorum, 3, { by: [alice, bob] });
    const decision = decideApproverSet(holding(S, 2), offer(removal), { trustDomain });
    assert.equal(told(decision), 'none@3');
    assert.deepEqual(
      [3, 4, 1].map((epoch) => decide({ quorum: null, epoch: 3 }, { ...T, approverSetEpoch: epoch })),
      ['stale-epoch', 'T@4', 'stale-epoch'],
    );
  });

  it('DMN-006 DMN-007 a malformed first set is taken as well: it only closes', async () => {
    const decision = decideApproverSet(nothing, offer({ ...S, approverThreshold: 0, approverSetEpoch: 1 }), { trustDomain });
    assert.equal(decision.kind === 'take' && decision.quorum.approverThreshold, 0);
  });

  it('PIN-001 PIN-007 PIN-015 a pinned machine takes its set alone: no other, and no empty one', async () => {
    const pin = approverSetDigest(S);
    const attacker = await signedSet(setOf([mallory], 1), 1, { by: [mallory] });
    assert.deepEqual(
      [attacker, noQuorum, await signedSet(S, 1)].map((set) => decide(nothing, set, { pin })),
      ['pin-mismatch', 'pin-mismatch', 'S@1'],
    );
    assert.equal(decide(nothing, attacker), 'other@1', 'without a pin it is taken');
  });

  it('PIN-007 the pin is for a machine without keys: what it holds is changed by its approvers', async () => {
    assert.equal(decide(holding(S, 1), await signedSet(T, 2, { by: [alice, bob] }), { pin: approverSetDigest(S) }), 'T@2');
  });
});

describe('a machine that was away', () => {
  const A = setOf([createApprover(), createApprover()], 1);
  const B = setOf([alice, bob], 2);
  const C = setOf([carol, dave], 2);
  const X = createApprover();
  const first = setOf([X], 1);

  it('H-10 walks the changes that the bundle lists, each signed by the one before it', async () => {
    const second = await signedSet(B, 2, { by: [X, alice, bob] });
    const third = await signedSet(C, 3, { by: [alice, bob, carol, dave] });
    const found = decideApproverSet(holding(first, 1), offer(third, [second, third]), { trustDomain });
    assert.deepEqual(found.kind === 'take' && [approverSetDigest(found.quorum), found.epoch], [approverSetDigest(C), 3]);
  });

  it('APPR-018 and without them, or with one missing in between, it stays where it is', async () => {
    const third = await signedSet(C, 3, { by: [alice, bob, carol, dave] });
    assert.equal(decide(holding(first, 1), third), 'approver-set-unsigned');
    assert.equal(decide(holding(first, 1), third, { changes: [third] }), 'approver-set-unsigned');
    assert.equal(decide(nothing, third, { pin: approverSetDigest(C) }), 'other@3', 'pinned again, it takes the set');
  });

  it('H-10 as far as the signatures lead: a forged change is passed over, and what was reached is kept', async () => {
    const second = await signedSet(B, 2, { by: [X] });
    const forged = await signedSet(A, 3, { by: [mallory] });
    const decision = decideApproverSet(holding(first, 1), offer(forged, [second, forged]), { trustDomain });
    assert.ok(decision.kind === 'refuse' && decision.reason === 'approver-set-unsigned');
    assert.deepEqual(decision.walked && [decision.walked.epoch, approverSetDigest(decision.walked.quorum as QuorumFields)], [
      2,
      approverSetDigest(B),
    ]);
  });

  it('PIN-007 H-10 a pinned machine that joins later walks from its pinned set', async () => {
    const start = await signedSet(first, 1, { by: [X] });
    const second = await signedSet(B, 2, { by: [X] });
    const found = decideApproverSet(nothing, offer(second, [start, second]), { trustDomain, pin: approverSetDigest(first) });
    assert.deepEqual(found.kind === 'take' && [found.epoch, approverSetDigest(found.quorum)], [2, approverSetDigest(B)]);
  });

  it('H-10 looks at the last sixteen changes and no more', async () => {
    const people = Array.from({ length: 18 }, createApprover);
    const sets = await Promise.all(
      people.map((person, i) => signedSet(setOf([person], 1), i + 1, { by: i === 0 ? [person] : [people[i - 1] as Approver, person] })),
    );
    const last = sets[17] as QuorumFields;
    assert.equal(decide(holding(sets[1] as QuorumFields, 2), last, { changes: sets.slice(2) }), 'other@18');
    assert.equal(decide(holding(sets[0] as QuorumFields, 1), last, { changes: sets.slice(1) }), 'approver-set-unsigned');
  });

  it('APPR-008 no order of offers ever lowers an epoch, and nobody but held approvers moves a held set', async () => {
    const people = [alice, bob, carol, dave];
    const offers = await Promise.all(
      [1, 2, 3, 4].flatMap((epoch) => people.flatMap((one) => people.map((signer) => signedSet(setOf([one], 1), epoch, { by: [signer] })))),
    );
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...offers), { maxLength: 12 }), (order) => {
        let held = nothing;
        for (const quorum of order) {
          const decision = decideApproverSet(held, offer(quorum), { trustDomain });
          if (decision.kind !== 'take') continue;
          assert.ok(decision.epoch > held.epoch);
          if (held.quorum !== null) assert.equal(quorum.approverSetSignatures[0]?.kid, held.quorum.approverKeys[0]?.kid);
          held = holding(decision.quorum, decision.epoch);
        }
      }),
    );
  });
});

describe('the set within the bundle', () => {
  const options = { now, minOverlapMs: 0, trustDomain };
  const root = async (): Promise<Uint8Array> => [...(await sharedBundle()).commandRootsById.values()][0]?.certificate.der as Uint8Array;
  async function held(): Promise<HeldTrust> {
    const taken = acceptTrustBundle(null, offer({ ...S, approverSetEpoch: 1 }, [], { version: 1 }), options);
    assert.ok(taken.kind === 'take');
    return taken.held;
  }

  it('DMN-024 APPR-017 a refused set leaves the held one, and the roots and the version are taken', async () => {
    const before = await held();
    const taken = acceptTrustBundle(before, offer({ ...T, approverSetEpoch: 2 }, [], { version: 2, roots: [await root()] }), options);
    assert.ok(taken.kind === 'take');
    assert.deepEqual(taken.quorumRefused, { reason: 'approver-set-unsigned', detail: '0 of 2 held approvers signed the set of epoch 2' });
    assert.deepEqual(
      [taken.held.version, taken.held.roots.length, taken.held.quorum, taken.held.approverSetEpoch],
      [2, 1, before.quorum, 1],
    );
  });

  it('APPR-004 APPR-007 TRUST-019 a signed set is taken with later roots, whatever the version has become', async () => {
    const signed = await signedSet(T, 2, { by: [alice, carol] });
    const taken = acceptTrustBundle(await held(), offer(signed, [], { version: 9, roots: [await root()] }), options);
    assert.ok(taken.kind === 'take' && taken.quorumRefused === null);
    assert.deepEqual([taken.held.version, taken.held.approverSetEpoch, approverSetDigest(taken.held.quorum)], [9, 2, approverSetDigest(T)]);
  });

  it('APPR-004 a rotation of roots leaves set and epoch alone', async () => {
    const before = await held();
    const taken = acceptTrustBundle(before, offer({ ...S, approverSetEpoch: 1 }, [], { version: 2, roots: [await root()] }), options);
    assert.ok(taken.kind === 'take');
    assert.deepEqual([taken.quorumRefused, taken.held.approverSetEpoch, taken.held.quorum], [null, 1, before.quorum]);
  });

  it('H-10 a bundle whose own set is refused still moves the machine along the changes before it', async () => {
    const second = await signedSet(T, 2, { by: [alice, bob] });
    const taken = acceptTrustBundle(await held(), offer({ ...S, approverSetEpoch: 3 }, [second], { version: 2 }), options);
    assert.ok(taken.kind === 'take');
    assert.deepEqual(
      [taken.quorumRefused?.reason, taken.held.approverSetEpoch, approverSetDigest(taken.held.quorum)],
      ['approver-set-unsigned', 2, approverSetDigest(T)],
    );
  });

  it('PIN-007 a set that is not the pinned one is refused, and the rest of the first bundle applies', async () => {
    const first = offer({ ...S, approverSetEpoch: 1 }, [], { version: 1, roots: [await root()] });
    const taken = acceptTrustBundle(null, first, { ...options, approverSetPin: approverSetDigest(T) });
    assert.ok(taken.kind === 'take');
    assert.deepEqual(
      [taken.quorumRefused?.reason, taken.held.version, taken.held.roots.length, taken.held.quorum],
      ['pin-mismatch', 1, 1, noQuorum],
    );
  });

  it('APPR-016 a signed removal leaves the epoch and no keys', async () => {
    const removal = await signedSet(noQuorum, 3, { by: [alice, bob] });
    const taken = acceptTrustBundle(await held(), offer(removal, [], { version: 2 }), options);
    assert.ok(taken.kind === 'take');
    assert.deepEqual([taken.held.quorum.approverKeys, taken.held.approverSetEpoch], [[], 3]);
  });

  it('DMN-026 an older bundle changes nothing, its set neither', async () => {
    const signed = await signedSet(T, 2, { by: [alice, bob] });
    assert.deepEqual(acceptTrustBundle(await held(), offer(signed, [], { version: 1 }), options), {
      kind: 'ignore',
      reason: 'same-version',
    });
  });

  it('quorumOf reads what a bundle says, frozen', async () => {
    const quorum = quorumOf(offer(await signedSet(S, 4, { by: [alice] })));
    assert.ok(Object.isFrozen(quorum) && Object.isFrozen(quorum.approverKeys) && quorum.approverKeys.every(Object.isFrozen));
    assert.equal(approverSetDigest(quorum), approverSetDigest(S));
  });
});

describeVectors('tuf-conformance', ['tuf-conformance', 'rotations.json'], () => {
  interface Rotation {
    readonly name: string;
    readonly steps: readonly {
      readonly keys: readonly number[];
      readonly threshold: number;
      readonly sigs: readonly number[];
      readonly oldThresholdAccepts: boolean;
    }[];
  }
  const { rootRotations } = readJsonVectors('tuf-conformance', 'rotations.json') as { rootRotations: readonly Rotation[] };
  const people = Array.from({ length: 10 }, createApprover);
  const person = (index: number): Approver => people[index] as Approver;

  for (const { name, steps } of rootRotations)
    it(`APPR-008 ${name}: the old threshold decides`, async () => {
      let held = nothing;
      for (const [at, { keys, threshold, sigs, oldThresholdAccepts }] of steps.entries()) {
        const set = await signedSet(setOf(keys.map(person), threshold), at + 1, { by: sigs.map(person) });
        const decision = decideApproverSet(held, offer(set), { trustDomain });
        assert.equal(decision.kind === 'take', oldThresholdAccepts, `step ${at + 1}`);
        if (decision.kind === 'take') held = holding(decision.quorum, decision.epoch);
      }
    });
});
