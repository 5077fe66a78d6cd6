import assert from 'node:assert/strict';
import { type Certificate, issueLeaf, oids, parseCertificate, type VerifyChainOptions, verifyChain } from '../../../pki/x509/index.ts';
import {
  type Authorities,
  createAuthorities,
  createAuthority,
  createKey,
  createOther,
  type Key,
  named,
  now,
  refusedWith,
  trustDomain,
} from './authorities.ts';
import { at, resigned, withChangedExtension } from './tampering.ts';

const hour = 3_600_000;
const day = 24 * hour;

describe('pki/x509 chain verification', () => {
  let all: Authorities;
  let leaf: Certificate;
  let leafKey: Key;
  before(async () => {
    all = await createAuthorities();
    leafKey = createKey();
    leaf = await issueLeaf({
      ca: all.nodeCa,
      profile: 'node',
      spki: leafKey.spki,
      identity: { trustDomain, siteId: 'fra1', nodeId: 'n1' },
      now,
    });
  });
  const verify = (chain: readonly Uint8Array[], options: Partial<VerifyChainOptions> = {}): ReturnType<typeof verifyChain> =>
    verifyChain(chain, { anchors: [all.root.certificate], now, purpose: 'client', ...options });
  it('returns the path from leaf to anchor, frozen', () => {
    const chain = verify([leaf.der, all.nodeCa.certificate]);
    assert.deepEqual(
      chain.path.map(({ serial }) => serial),
      [leaf.serial, all.nodeCa.parsed.serial, all.root.parsed.serial],
    );
    assert.equal(chain.leaf.serial, leaf.serial);
    assert.equal(chain.anchor.serial, all.root.parsed.serial);
    assert.ok(Object.isFrozen(chain) && Object.isFrozen(chain.path));
  });

  it('takes an intermediate as an anchor', () => {
    assert.equal(verify([leaf.der], { anchors: [all.nodeCa.certificate] }).path.length, 2);
  });

  it('H-11 and KEY-008 an unknown issuer is refused, whoever of the deployment it is', () => {
    for (const anchors of [[], [all.servingCa.certificate], [all.internalCa.certificate, all.commandRoot.certificate]])
      assert.throws(
        () => verify([leaf.der, all.nodeCa.certificate], { anchors }),
        refusedWith('BAD_SIGNATURE', 'unknown-issuer', /does not lead to a trust anchor/),
      );
    assert.throws(() => verify([leaf.der]), refusedWith('BAD_SIGNATURE', 'unknown-issuer', /does not lead/));
  });

  it('an authority of the same name with another key signs nothing here', async () => {
    const twin = await createAuthorities();
    assert.throws(
      () => verify([leaf.der, twin.nodeCa.certificate], { anchors: [twin.root.certificate] }),
      refusedWith('BAD_SIGNATURE', 'unknown-issuer', /does not lead/),
    );
    const forged = await resigned([leaf.der, createKey()], [at.serial], (found) => found);
    assert.throws(
      () => verify([forged, all.nodeCa.certificate]),
      refusedWith('BAD_SIGNATURE', 'bad-signature', /not signed by the issuer it names/),
    );
  });

  it('C35 of two anchors with one name the key decides, in either order', async () => {
    const other = await createAuthority('commandRoot');
    const worker = await issueLeaf({ ca: other, profile: 'worker', spki: createKey().spki, now });
    for (const anchors of [
      [all.commandRoot.certificate, other.certificate],
      [other.certificate, all.commandRoot.certificate],
    ])
      assert.equal(verify([worker.der], { anchors, purpose: 'command-signer' }).anchor.serial, other.parsed.serial);
  });

  it('C14 two certificates of one authority (a renewal), both orders, as intermediates and as anchors', async () => {
    const earlier = now - 700 * day;
    const root = await createAuthority('rootCa', { now: earlier });
    const old = await createAuthority('nodeCa', { parent: root, now: earlier, lifetimeMs: 701 * day });
    const renewed = await createAuthority('nodeCa', { parent: root, key: old });
    const issued = await issueLeaf({
      ca: renewed,
      profile: 'node',
      spki: createKey().spki,
      identity: { trustDomain, siteId: 's', nodeId: 'n' },
      now,
    });
    const both = [old.certificate, renewed.certificate];
    for (const order of [both, both.toReversed()])
      for (const at of [now, now + 23 * hour]) {
        verify([issued.der, ...order], { anchors: [root.certificate], now: at });
        verify([issued.der], { anchors: order, now: at });
      }
    // One of them has ended: the other still serves, in either order; with the ended one alone it is said so.
    const late = now + 25 * hour;
    const long = await createOther(
      { subject: [], uriSans: ['spiffe://a/site/b/node/c'], ekus: [oids.clientAuth], notAfter: now + 30 * day },
      renewed,
    );
    for (const order of [both, both.toReversed()]) verify([long.certificate, ...order], { anchors: [root.certificate], now: late });
    assert.throws(
      () => verify([long.certificate, old.certificate], { anchors: [root.certificate], now: late }),
      refusedWith('CERTIFICATE_EXPIRED', 'expired', new RegExp(`authority ${old.parsed.serial} expired`)),
    );
  });

  it('notAfter is inclusive to the end of its second, notBefore too', () => {
    const ca = { anchors: [all.nodeCa.certificate] };
    verify([leaf.der], { ...ca, now: leaf.notAfter });
    verify([leaf.der], { ...ca, now: leaf.notAfter + 999 });
    assert.throws(
      () => verify([leaf.der], { ...ca, now: leaf.notAfter + 1_000 }),
      refusedWith('CERTIFICATE_EXPIRED', 'expired', /certificate .* expired at 2027-03-05T05:06:07Z/),
    );
    verify([leaf.der], { ...ca, now: leaf.notBefore });
    assert.throws(
      () => verify([leaf.der], { ...ca, now: leaf.notBefore - 1 }),
      refusedWith('CERTIFICATE_EXPIRED', 'not-yet-valid', /not valid before/),
    );
    assert.throws(
      () => verify([leaf.der, all.nodeCa.certificate], { now: all.root.parsed.notAfter + 1_000 }),
      refusedWith('CERTIFICATE_EXPIRED', 'expired', /expired/),
    );
  });

  it('JOIN-007 a grace of seven days holds for the leaf and to the second', () => {
    const options = { anchors: [all.nodeCa.certificate], leafGraceMs: 7 * day };
    verify([leaf.der], { ...options, now: leaf.notAfter + 7 * day });
    assert.throws(
      () => verify([leaf.der], { ...options, now: leaf.notAfter + 7 * day + 1_000 }),
      refusedWith('CERTIFICATE_EXPIRED', 'expired', /expired/),
    );
    assert.throws(
      () => verify([leaf.der], { ...options, now: all.nodeCa.parsed.notAfter + 1_000, leafGraceMs: 1_000 * day }),
      refusedWith('CERTIFICATE_EXPIRED', 'expired', /authority .* expired/),
    );
  });

  it('an issuer that is no authority, or may not sign certificates, issues nothing', async () => {
    const end = await createOther({ subject: [{ oid: oids.commonName, value: 'end' }] }, all.root);
    const under = await createOther({ ekus: [oids.clientAuth] }, end);
    assert.throws(
      () => verify([under.certificate, end.certificate]),
      refusedWith('PERMISSION_DENIED', 'not-a-ca', /issued another and is no authority/),
    );
    const crlOnly = await withChangedExtension([all.nodeCa.certificate, all.root], '551d0f', (entry) => ({
      ...entry,
      children: (entry.children ?? []).map((child, i) => (i === 2 ? { ...child, content: Buffer.from('03020102', 'hex') } : child)),
    }));
    assert.deepEqual(parseCertificate(crlOnly).keyUsage, ['cRLSign']);
    assert.throws(() => verify([leaf.der, crlOnly]), refusedWith('PERMISSION_DENIED', 'key-usage', /may not sign certificates/));
    const none = await withChangedExtension([all.nodeCa.certificate, all.root], '551d0f', () => null);
    assert.throws(() => verify([leaf.der, none]), refusedWith('PERMISSION_DENIED', 'key-usage', /may not sign certificates/));
  });

  it('path lengths hold: an authority under the node CA issues nothing', async () => {
    const below = await createOther({ ...named('below'), ekus: [oids.clientAuth] }, all.nodeCa);
    const under = await createOther({ ekus: [oids.clientAuth] }, below);
    assert.throws(
      () => verify([under.certificate, below.certificate], { anchors: [all.nodeCa.certificate] }),
      refusedWith('PERMISSION_DENIED', 'path-length', /has 1 authorities below it and may have 0/),
    );
    assert.throws(
      () => verify([under.certificate, below.certificate, all.nodeCa.certificate]),
      refusedWith('PERMISSION_DENIED', 'path-length', /may have 0/),
    );
  });

  it('depth is bounded, by default to two authorities between, and the order of the rest does not matter', async () => {
    const root = await createOther(named('r'), null);
    const a = await createOther(named('a'), root);
    const b = await createOther(named('b'), a);
    const c = await createOther(named('c'), b);
    const under = await createOther({ ekus: [oids.clientAuth] }, c);
    const second = await createOther({ ekus: [oids.clientAuth] }, b);
    const anchors = [root.certificate];
    for (const rest of [
      [a, b],
      [b, a],
    ])
      verify([second.certificate, ...rest.map(({ certificate }) => certificate)], { anchors });
    const chain = [under, c, b, a].map(({ certificate }) => certificate);
    assert.throws(() => verify(chain, { anchors }), refusedWith('BAD_SIGNATURE', 'unknown-issuer', /does not lead/));
    assert.equal(verify(chain, { anchors, maxDepth: 3 }).path.length, 5);
  });

  it('work is bounded: too many certificates, a loop, and many of one name', async () => {
    assert.throws(() => verify([]), refusedWith('MALFORMED', 'chain-length', /1 to 8 certificates, not 0/));
    assert.throws(() => verify(Array.from({ length: 9 }, () => leaf.der)), refusedWith('MALFORMED', 'chain-length', /not 9/));
    const [x, y] = [createKey(), createKey()];
    const selfX = await createOther(named('x'), null, x);
    const selfY = await createOther(named('y'), null, y);
    const crossX = await createOther(named('x'), selfY, x);
    const crossY = await createOther(named('y'), selfX, y);
    const under = await createOther({ ekus: [oids.clientAuth] }, selfX);
    const loop = [under, crossX, crossY, selfX, selfY, crossX, crossY, selfX].map(({ certificate }) => certificate);
    assert.throws(() => verify(loop, { maxDepth: 8 }), refusedWith('BAD_SIGNATURE', 'unknown-issuer', /does not lead/));
  });

  it('junk beside a good path does not spoil it; alone it is named', () => {
    verify([leaf.der, Buffer.from('junk'), all.nodeCa.certificate], { anchors: [Buffer.from('junk'), all.root.certificate] });
    assert.throws(() => verify([leaf.der, Buffer.from('junk')]), refusedWith('MALFORMED', 'der-tag', /tag 0x30 expected/));
    assert.throws(() => verify([Buffer.from('junk'), all.nodeCa.certificate]), refusedWith('MALFORMED', 'der-tag', /tag 0x30 expected/));
  });

  it("certificates name their issuer's key", async () => {
    const without = await withChangedExtension([leaf.der, all.nodeCa], '551d23', () => null);
    assert.throws(
      () => verify([without, all.nodeCa.certificate]),
      refusedWith('PERMISSION_DENIED', 'key-identifier', /does not name the key of its issuer/),
    );
    const ca = await withChangedExtension([all.nodeCa.certificate, all.root], '551d0e', () => null);
    assert.throws(() => verify([leaf.der, ca]), refusedWith('PERMISSION_DENIED', 'key-identifier', /has no key identifier/));
  });

  it('an authority is no leaf, and a leaf that may not sign is none', async () => {
    assert.throws(() => verify([all.nodeCa.certificate]), refusedWith('PERMISSION_DENIED', 'ca-as-leaf', /used as a leaf/));
    const agreeOnly = await createOther({ keyUsage: ['keyAgreement'], ekus: [oids.clientAuth] }, all.nodeCa);
    assert.throws(
      () => verify([agreeOnly.certificate], { anchors: [all.nodeCa.certificate] }),
      refusedWith('PERMISSION_DENIED', 'key-usage', /not for signatures/),
    );
    const none = await withChangedExtension([leaf.der, all.nodeCa], '551d0f', () => null);
    assert.throws(() => verify([none, all.nodeCa.certificate]), refusedWith('PERMISSION_DENIED', 'key-usage', /not for signatures/));
  });
});
