import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { retirementOpensAt } from '../../../domain/rotation/ca-renewal.ts';
import { productionTimes } from '../../../domain/rotation/gates.ts';
import { day, hour, minute } from '../../../domain/time.ts';
import { createAuthorities } from '../../../pki/authority/index.ts';
import {
  addSandboxSshCa,
  caRetirementFacts,
  createBundleWithOfflineRoot,
  encodeBundle,
  longestLeafMs,
  openBundle,
  type PkiBundle,
  type RenewableCa,
  renewableCas,
  renewCa,
  retireCaCertificate,
} from '../../../pki/bundle/index.ts';
import { signerFromPrivateKey, spkiOf, verifyChain } from '../../../pki/x509/index.ts';
import { now, refusal, secret, sharedBundle, trustDomain } from '../support.ts';

const year = 365 * day;
const later = now + year;
const reopened = (bundle: PkiBundle): PkiBundle => openBundle(encodeBundle(bundle, { secret }), { secret });
const newKey = (): Uint8Array => spkiOf(generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey);

describe('renewing a CA of a bundle', () => {
  let start: PkiBundle;
  before(async () => {
    start = await sharedBundle();
  });

  for (const ca of renewableCas) {
    it(`CLI-049 CLI-050 ${ca}: a new certificate from the root, for the same key and subject, in front of the old one`, async () => {
      const renewed = await renewCa(start, { ca, now: later });
      assert.equal(renewed.changed, true);
      const { [ca]: after, ...rest } = reopened(renewed.bundle);
      const before = start[ca];
      assert.deepEqual(
        after.certificates.map(({ serial }) => serial),
        [renewed.certificate.serial, before.certificate.serial],
      );
      assert.deepEqual([after.spki, after.certificate.subject.der], [before.spki, before.certificate.subject.der]);
      assert.notEqual(after.certificate.serial, before.certificate.serial);
      assert.equal(after.certificate.notAfter, later + 2 * year);
      assert.deepEqual(after.certificate.issuer.der, start.rootCa.certificate.subject.der);
      assert.deepEqual(rest.trustVersion, start.trustVersion, 'no daemon has anything to learn');
    });
  }

  it('CLI-053 what the CA issued before is valid under the new certificate alone, and what it issues now under the old one alone', async () => {
    const identity = { trustDomain, siteId: 'fra1', nodeId: 'node-1' };
    const issue = (bundle: PkiBundle) => createAuthorities(bundle).issueNode({ spki: newKey(), identity, role: 'node', now: later });
    const { bundle } = await renewCa(start, { ca: 'nodeCa', now: later });
    const [earlier, present] = [await issue(start), await issue(bundle)];
    const [next, old] = [bundle.nodeCa.certificate.der, start.nodeCa.certificate.der];
    for (const { chain } of [earlier, present]) {
      for (const anchor of [next, old]) {
        assert.ok(verifyChain(chain, { anchors: [anchor], now: later + hour, purpose: 'client' }));
      }
    }
    assert.deepEqual(present.chain[1], next, 'new certificates come with the new one');
  });

  it('KEY-011 CLI-049 never past the root, and refused when nothing is gained', async () => {
    const almost = now + 9 * year;
    const once = await renewCa(start, { ca: 'servingCa', now: almost });
    assert.equal(once.certificate.notAfter, start.rootCa.certificate.notAfter);
    await assert.rejects(
      renewCa(once.bundle, { ca: 'servingCa', now: almost + day }),
      refusal(
        'INVALID_STATE',
        'root-ends-first',
        /^a renewal gains nothing: the certificate ends at 2036-01-13T12:00:00Z already, with the root$/,
      ),
    );
    await assert.rejects(renewCa(start, { ca: 'servingCa', now }), refusal('INVALID_STATE', 'nothing-gained', /gains nothing: .*already$/));
    await assert.rejects(
      renewCa(start, { ca: 'nodeCa', now: start.rootCa.certificate.notAfter - minute }),
      refusal('CA_EXPIRED', 'ca-expired', /issues nothing in its last ten minutes/),
    );
  });

  it('CLI-052 KEY-045 an offline root: refused without its key, refused with another, never in the bundle afterwards', async () => {
    const { bundle, rootKey } = await createBundleWithOfflineRoot({ trustDomain, now });
    const offline = reopened(bundle);
    await assert.rejects(
      renewCa(offline, { ca: 'nodeCa', now: later }),
      refusal('INVALID_STATE', 'key-offline', /^the root's private key is not in the key bundle$/),
    );
    const foreign = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
    await assert.rejects(
      renewCa(offline, { ca: 'nodeCa', now: later, rootSigner: foreign }),
      refusal('INVALID_INPUT', 'wrong-root-key', /not the one of this key bundle's root CA/),
    );
    const renewed = await renewCa(offline, { ca: 'nodeCa', now: later, rootSigner: signerFromPrivateKey(rootKey) });
    assert.equal(reopened(renewed.bundle).rootCa.privateKey, undefined);
    assert.equal(renewed.bundle.nodeCa.certificates.length, 2);
  });

  it('CLI-053 a repeated renewal of one certificate changes nothing, in a workflow that runs its step again', async () => {
    const { serial } = start.internalCa.certificate;
    const first = await renewCa(start, { ca: 'internalCa', now: later, serial });
    const again = await renewCa(first.bundle, { ca: 'internalCa', now: later + hour, serial });
    assert.equal(again.changed, false);
    assert.equal(again.bundle, first.bundle);
    assert.equal(again.certificate.serial, first.certificate.serial);
  });

  it('CLI-055 the earlier certificate opens for its leave when the longest leaf could have ended, or the last recorded one has', async () => {
    const longest: readonly [RenewableCa, number][] = [
      ['nodeCa', day],
      ['servingCa', 90 * day],
      ['internalCa', 30 * day],
    ];
    for (const [ca, lifetimeMs] of longest) {
      assert.equal(longestLeafMs(ca), lifetimeMs);
      const { bundle } = await renewCa(start, { ca, now: later });
      const asked = { ca, serial: start[ca].certificate.serial };
      const facts = caRetirementFacts(bundle[ca].certificates, { ...asked, lastLeafNotAfter: null });
      assert.deepEqual(facts, { renewedAt: later, oldNotAfter: start[ca].certificate.notAfter, lastLeafNotAfter: later + lifetimeMs });
      const recorded = caRetirementFacts(bundle[ca].certificates, { ...asked, lastLeafNotAfter: later + hour });
      assert.equal(retirementOpensAt(recorded, productionTimes), later + day);
      assert.throws(
        () => caRetirementFacts(start[ca].certificates, { ...asked, lastLeafNotAfter: null }),
        refusal('INVALID_STATE', 'out-of-order', /has not been renewed$/),
      );
    }
  });

  it('CLI-055 it leaves by itself at the first renewal after that, and not before', async () => {
    const first = (await renewCa(start, { ca: 'servingCa', now: later })).bundle;
    const soon = (await renewCa(first, { ca: 'servingCa', now: later + 30 * day })).bundle;
    assert.equal(soon.servingCa.certificates.length, 3);
    const late = (await renewCa(soon, { ca: 'servingCa', now: later + 91 * day })).bundle;
    assert.deepEqual(
      late.servingCa.certificates.slice(1).map(({ serial }) => serial),
      [soon.servingCa.certificate.serial, first.servingCa.certificate.serial],
    );
    assert.equal(reopened(late).servingCa.certificates.length, 3);
  });

  it('CLI-055 or by a step of its own, once', async () => {
    const { bundle } = await renewCa(start, { ca: 'nodeCa', now: later });
    const input = {
      ca: 'nodeCa',
      serial: start.nodeCa.certificate.serial,
      now: later + day,
      opensAt: later + day,
      forcedReason: '',
    } as const;
    const retired = retireCaCertificate(bundle, input);
    assert.deepEqual([retired.changed, reopened(retired.bundle).nodeCa.certificates.length], [true, 1]);
    assert.deepEqual(retireCaCertificate(retired.bundle, input), { bundle: retired.bundle, changed: false });
    assert.throws(
      () => retireCaCertificate(bundle, { ...input, now: later }),
      refusal('INVALID_STATE', 'retire-too-early', /cannot leave before 2027-01-16T12:00:00Z$/),
    );
  });

  it('no more than eight overlap', async () => {
    let bundle = start;
    for (let at = 1; at < 8; at++) bundle = (await renewCa(bundle, { ca: 'servingCa', now: later + at * hour })).bundle;
    assert.equal(bundle.servingCa.certificates.length, 8);
    await assert.rejects(
      renewCa(bundle, { ca: 'servingCa', now: later + day }),
      refusal('INVALID_STATE', 'too-many-certificates', /has 8 certificates already/),
    );
  });
});

describe('adding a sandbox SSH CA', () => {
  it('CLI-028 CLI-029 CLI-033 a new bundle has one; an old one gets an Ed25519 key with the name of the deployment, once', async () => {
    const start = await sharedBundle();
    const { sandboxSshCa, ...old } = start;
    assert.ok(sandboxSshCa !== undefined);
    const added = addSandboxSshCa(old);
    assert.match(added.sandboxSshCa.publicKey, /^ssh-ed25519 [A-Za-z0-9+/=]+ compute\.example\.com sandbox ssh ca$/);
    assert.notEqual(added.sandboxSshCa.publicKey, sandboxSshCa.publicKey);
    assert.equal(reopened(added).sandboxSshCa?.publicKey, added.sandboxSshCa.publicKey);
    assert.throws(
      () => addSandboxSshCa(added),
      refusal('INVALID_STATE', 'sandbox-ca-present', /^the key bundle already has a sandbox SSH CA$/),
    );
  });
});
