import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { day, hour } from '../../../domain/time.ts';
import { type CommandRoot, createCommandRoot, type PkiBundle } from '../../../pki/bundle/index.ts';
import {
  acceptTrustBundle,
  approverSetDigest,
  buildTrustBundle,
  type HeldTrust,
  noQuorum,
  type QuorumFields,
  signTrustBundle,
  trustBundleOf,
  trustContentDigest,
  verifySignedTrustBundle,
} from '../../../pki/trust/index.ts';
import { SignedTrustBundleSchema, type TrustBundle, TrustBundleSchema } from '../../../proto/index.ts';
import { now, refusal, sharedBundle, trustDomain } from '../support.ts';

interface GoldenQuorum extends Omit<QuorumFields, 'approverKeys' | 'approverSetSignatures'> {
  readonly approverKeys: { kid: string; spki: string }[];
  readonly approverSetSignatures: { kid: string; sig: string }[];
}
const golden = JSON.parse(readFileSync(join(import.meta.dirname, '../../golden/trust-content.json'), 'utf8')) as {
  cases: { name: string; roots: string[]; quorum: GoldenQuorum; approverSetSha256: string; digest: string }[];
};
const bytes = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, 'hex'));
const quorumOf = (quorum: GoldenQuorum): QuorumFields => ({
  ...quorum,
  approverKeys: quorum.approverKeys.map(({ kid, spki }) => ({ kid, spki: bytes(spki) })),
  approverSetSignatures: quorum.approverSetSignatures.map(({ kid, sig }) => ({ kid, sig: bytes(sig) })),
});

describe('the digest of trust content', () => {
  for (const { name, roots, quorum, approverSetSha256, digest } of golden.cases) {
    it(`TRUST-004 A-PKI-13 C38 golden: ${name}`, () => {
      assert.equal(trustContentDigest({ roots: roots.map(bytes), quorum: quorumOf(quorum) }), digest);
      assert.equal(approverSetDigest(quorumOf(quorum)), approverSetSha256);
    });
  }

  it('TRUST-004 the order of roots, keys and signatures carries no meaning; every other change does', () => {
    const digestOf = (name: string): string => golden.cases.find((entry) => entry.name === name)?.digest ?? assert.fail(name);
    assert.equal(digestOf('two roots'), digestOf('two roots in the other order'));
    assert.equal(digestOf('two roots'), digestOf('a root twice'));
    assert.equal(digestOf('a quorum'), digestOf('a quorum in another order of keys and signatures'));
    const distinct = [
      'no roots',
      'one root',
      'two roots',
      'a quorum',
      'another threshold',
      'another tier',
      'another cap',
      'another epoch',
      'another key',
      'no signatures',
    ];
    assert.equal(new Set(distinct.map(digestOf)).size, distinct.length);
  });

  it('TRUST-004 any two sets of roots have one digest exactly when they are one set', () => {
    const sets = fc.uniqueArray(fc.uint8Array({ minLength: 1, maxLength: 4 }), {
      maxLength: 4,
      selector: (root) => Buffer.from(root).toString('hex'),
    });
    fc.assert(
      fc.property(sets, sets, (a, b) => {
        const key = (roots: readonly Uint8Array[]): string =>
          roots
            .map((root) => Buffer.from(root).toString('hex'))
            .sort()
            .join();
        assert.equal(trustContentDigest({ roots: a }) === trustContentDigest({ roots: b }), key(a) === key(b));
      }),
    );
  });
});

describe('the signed trust bundle', () => {
  let bundle: PkiBundle;
  before(async () => {
    bundle = await sharedBundle();
  });
  const joinKey = (): { joinKey: Uint8Array; trustDomain: string } => ({ joinKey: bundle.joinSigning.spki, trustDomain });

  it('SIGN-008 SIGN-009 TRUST-020 TRUST-021 carries the roots, signed by the JoinService key; quorum fields are empty', async () => {
    const read = verifySignedTrustBundle(await signTrustBundle(bundle.joinSigning.signer(), trustBundleOf(bundle, 4)), joinKey());
    assert.equal(read.version, 4n);
    assert.deepEqual(
      read.commandRoots.map((der) => Buffer.from(der)),
      [Buffer.from(bundle.commandSigning?.certificate.der ?? [])],
    );
    assert.deepEqual([read.approverKeys, read.approverThreshold, read.quorumTiers, read.unbatchedDestructivePerHour], [[], 0, [], 0]);
    assert.deepEqual([read.approverSetSignatures, read.approverSetEpoch, read.trustDomain], [[], 0n, trustDomain]);
  });

  it('SIGN-009 TRUST-020 another key, a changed byte and another purpose are refused', async () => {
    const signed = await signTrustBundle(bundle.joinSigning.signer(), trustBundleOf(bundle, 4));
    assert.throws(
      () => verifySignedTrustBundle(signed, { ...joinKey(), joinKey: bundle.nodeCa.spki }),
      refusal('BAD_SIGNATURE', 'other-key', /the trust-bundle names key/),
    );
    const message = fromBinary(SignedTrustBundleSchema, signed);
    const raised = { ...fromBinary(TrustBundleSchema, message.body), version: 9n };
    message.body = toBinary(TrustBundleSchema, raised);
    assert.throws(() => verifySignedTrustBundle(message, joinKey()), refusal('BAD_SIGNATURE', 'bad-signature', /does not match/));
    assert.throws(
      () => verifySignedTrustBundle(create(SignedTrustBundleSchema, { body: message.body }), joinKey()),
      refusal('BAD_SIGNATURE', 'unsigned', /not signed/),
    );
  });

  it('refuses the bundle of another trust domain, and bytes that are none', async () => {
    const foreign = await signTrustBundle(bundle.joinSigning.signer(), { ...trustBundleOf(bundle, 4), trustDomain: 'other' });
    assert.throws(
      () => verifySignedTrustBundle(foreign, joinKey()),
      refusal('PERMISSION_DENIED', 'wrong-trust-domain', /of trust domain other, not compute\.example\.com/),
    );
    assert.throws(
      () => verifySignedTrustBundle(Buffer.from([0xff]), joinKey()),
      refusal('MALFORMED', 'trust-bundle', /SignedTrustBundle does not decode/),
    );
    assert.throws(
      () => verifySignedTrustBundle(new Uint8Array(300 * 1024), joinKey()),
      refusal('MALFORMED', 'trust-bundle', /does not decode/),
    );
  });
});

describe('acceptTrustBundle', () => {
  let a: CommandRoot;
  let b: CommandRoot;
  before(async () => {
    a = await createCommandRoot({ trustDomain, now });
    b = await createCommandRoot({ trustDomain, now });
  });

  const options = { now, minOverlapMs: day };
  const offer = (
    version: number,
    roots: readonly CommandRoot[],
    change: Partial<Parameters<typeof buildTrustBundle>[0]> = {},
  ): TrustBundle =>
    buildTrustBundle({ version, trustDomain, roots: roots.map(({ certificate }) => certificate.der), removed: [], ...change });
  const hold = (bundle: TrustBundle, held: HeldTrust | null = null): HeldTrust => {
    const answer = acceptTrustBundle(held, bundle, options);
    assert.equal(
      answer.kind,
      'take',
      JSON.stringify(answer, (_, value: unknown) => (typeof value === 'bigint' ? Number(value) : value)),
    );
    return (answer as { held: HeldTrust }).held;
  };
  const removed = (root: CommandRoot, change: { switchedAt?: number; removedAt?: number; forcedReason?: string } = {}) => ({
    removed: [{ id: root.id, switchedAt: now - day, removedAt: now, forcedReason: '', ...change }],
  });

  it('JOIN-025 takes the first bundle whole, and requires signatures from then on', () => {
    const bundle = offer(1, [a]);
    assert.deepEqual(hold(bundle), {
      version: 1,
      trustDomain,
      roots: bundle.commandRoots,
      signaturesRequired: true,
      takenAt: now,
      quorum: noQuorum,
      approverSetEpoch: 0,
      bundle,
    });
  });

  it('TRUST-002 takes a newer version; ignores the same and an older one, whatever they hold', () => {
    const held = hold(offer(5, [a]));
    assert.equal(hold(offer(6, [a, b]), held).version, 6);
    assert.deepEqual(acceptTrustBundle(held, offer(5, [a, b]), options), { kind: 'ignore', reason: 'same-version' });
    assert.deepEqual(acceptTrustBundle(held, offer(4, [b]), options), { kind: 'ignore', reason: 'older-version' });
  });

  it('H-06 C30 a daemon that holds roots never takes a bundle with none, and once it requires signatures it always does', () => {
    const held = hold(offer(1, [a]));
    const empty = offer(2, [], removed(a));
    assert.deepEqual(acceptTrustBundle(held, empty, options), {
      kind: 'refuse',
      reason: 'no-roots',
      detail: 'version 2 holds no command root; this node holds 1',
    });
    assert.equal(acceptTrustBundle({ ...held, roots: [] }, offer(3, []), options).kind, 'refuse');
  });

  it('SIGN-018 a deployment that signs nothing yet can turn signing on', () => {
    const held = hold(offer(1, []));
    assert.equal(held.signaturesRequired, false);
    assert.equal(hold(offer(2, [a]), held).signaturesRequired, true);
  });

  it('C31 a held root leaves only with an entry that explains it', () => {
    const held = hold(offer(1, [a]));
    const answer = acceptTrustBundle(held, offer(2, [b]), options);
    assert.deepEqual(answer, {
      kind: 'refuse',
      reason: 'root-removed-unexplained',
      detail: `root ${a.id} is gone and the bundle does not say why`,
    });
    assert.equal(acceptTrustBundle(held, offer(2, [b], removed(b)), options).kind, 'refuse');
  });

  it('H-03 a root that signed leaves after the overlap, to the millisecond', () => {
    const held = hold(offer(2, [a, b]));
    assert.equal(hold(offer(3, [b], removed(a)), held).roots.length, 1);
    const early = acceptTrustBundle(held, offer(3, [b], removed(a, { switchedAt: now - day + 1 })), options);
    assert.deepEqual(early, {
      kind: 'refuse',
      reason: 'root-removed-too-early',
      detail: `root ${a.id} was removed 86399 s after it last signed, less than 86400 s`,
    });
    assert.equal(acceptTrustBundle(held, offer(3, [b], removed(a, { switchedAt: now + hour })), options).kind, 'refuse');
  });

  it('H-04 C12 a root that never signed leaves at once; H-08 a forced removal says so', () => {
    const held = hold(offer(2, [a, b]));
    assert.equal(hold(offer(3, [a], removed(b, { switchedAt: 0 })), held).roots.length, 1);
    assert.equal(hold(offer(3, [b], removed(a, { switchedAt: now - hour, forcedReason: 'the key leaked' })), held).roots.length, 1);
  });

  it('a second root may not leave behind an explained one', () => {
    const held = hold(offer(2, [a, b]));
    assert.equal(acceptTrustBundle(held, offer(3, [], removed(a)), options).kind, 'refuse');
    const c = offer(3, [], removed(a));
    assert.equal(
      (acceptTrustBundle({ ...held, signaturesRequired: false }, c, options) as { reason: string }).reason,
      'root-removed-unexplained',
    );
  });

  it('refuses another trust domain, a version that cannot be counted and roots that are none', () => {
    const held = hold(offer(1, [a]));
    assert.deepEqual(acceptTrustBundle(held, offer(2, [a], { trustDomain: 'other' }), options), {
      kind: 'refuse',
      reason: 'wrong-trust-domain',
      detail: 'trust domain other, not compute.example.com',
    });
    assert.equal(acceptTrustBundle(null, offer(1, [a], { trustDomain: 'other' }), { ...options, trustDomain }).kind, 'refuse');
    for (const version of [0n, 2n ** 53n, 2n ** 64n - 1n]) {
      assert.deepEqual(acceptTrustBundle(null, { ...offer(1, [a]), version }, options), {
        kind: 'refuse',
        reason: 'bad-version',
        detail: `version ${version}`,
      });
    }
    const broken = { ...offer(2, [a]), commandRoots: [a.certificate.der, Buffer.from('x')] };
    assert.deepEqual(acceptTrustBundle(held, broken, options), {
      kind: 'refuse',
      reason: 'malformed-root',
      detail: 'command root 2 of 2 does not parse',
    });
  });

  it('A-PKI-13 quorum fields are kept as they come', () => {
    const quorum = quorumOf(golden.cases.find(({ name }) => name === 'a quorum')?.quorum as GoldenQuorum);
    const held = hold(offer(1, [a], { quorum }));
    assert.equal(held.bundle.approverKeys.length, 3);
    assert.equal(held.bundle.approverSetEpoch, 3n);
  });

  it('TRUST-002 TRUST-025 H-06 whatever is offered in whatever order, the version only rises and a held root never vanishes unexplained', () => {
    const step = fc.record({
      version: fc.integer({ min: 1, max: 6 }),
      roots: fc.subarray([0, 1]),
      gone: fc.option(fc.record({ which: fc.nat(1), overlap: fc.constantFrom(0, hour, day), forced: fc.boolean() })),
    });
    type Step = { version: number; roots: number[]; gone: { which: number; overlap: number; forced: boolean } | null };
    const pick = (index: number): CommandRoot => (index === 0 ? a : b);
    const offered = ({ version, roots, gone }: Step): TrustBundle =>
      offer(
        version,
        roots.map(pick),
        gone === null ? {} : removed(pick(gone.which), { switchedAt: now - gone.overlap, forcedReason: gone.forced ? 'x' : '' }),
      );
    const mayLose = (der: Uint8Array, gone: Step['gone']): boolean =>
      gone !== null && Buffer.from(pick(gone.which).certificate.der).equals(der) && (gone.forced || gone.overlap >= day);
    const judge = (before: HeldTrust, after: HeldTrust, gone: Step['gone']): void => {
      assert.ok(after.version > before.version);
      if (before.signaturesRequired) assert.ok(after.signaturesRequired && after.roots.length > 0);
      const lost = before.roots.filter((der) => !after.roots.some((kept) => Buffer.from(kept).equals(der)));
      assert.ok(lost.every((der) => mayLose(der, gone)));
    };
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        let held: HeldTrust | null = null;
        for (const one of steps) {
          const answer = acceptTrustBundle(held, offered(one), options);
          if (answer.kind !== 'take') continue;
          if (held !== null) judge(held, answer.held, one.gone);
          held = answer.held;
        }
      }),
    );
  });
});
