import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Code } from '../../../domain/errors.ts';
import { authenticateBundle, bundleDigest, openBundle, readPublicBundle } from '../../../pki/bundle/index.ts';
import { refusal, secret, trustDomain } from '../support.ts';

const folder = join(import.meta.dirname, '../../golden/bundles');
const golden = (name: string): string => readFileSync(join(folder, `${name}.json`), 'utf8');

/** Found by an independent implementation of HKDF, AES-GCM and the canonical form over current.json. */
const currentDigest = '3ed0b628f0ae2d40a022fc3c995c6f39ec643b16a763214248309d144409aa71';

const restore = /restore it from a backup/;

/** File → what opening it says. */
const tampered: Readonly<Record<string, readonly [Code, string, RegExp]>> = {
  'trust-domain-changed': ['INVALID_CONFIG', 'seal', restore],
  'trust-version-raised': ['INVALID_CONFIG', 'public-half-changed', restore],
  'generation-raised': ['INVALID_CONFIG', 'public-half-changed', restore],
  'command-root-appended': ['INVALID_CONFIG', 'public-half-changed', restore],
  'signing-root-exchanged': ['INVALID_CONFIG', 'public-half-changed', restore],
  'rotation-cleared': ['INVALID_CONFIG', 'public-half-changed', restore],
  'removed-root-forged': ['INVALID_CONFIG', 'public-half-changed', restore],
  'republish-ordered': ['INVALID_CONFIG', 'public-half-changed', restore],
  'node-ca-exchanged': ['INVALID_CONFIG', 'public-half-changed', restore],
  'node-ca-certificate-appended': ['INVALID_CONFIG', 'public-half-changed', restore],
  'renewed-ca-order-exchanged': ['INVALID_CONFIG', 'public-half-changed', restore],
  'serving-ca-certificate-repeated': ['INVALID_CONFIG', 'public-half-changed', restore],
  'join-key-exchanged': ['INVALID_CONFIG', 'public-half-changed', restore],
  'ssh-ca-exchanged': ['INVALID_CONFIG', 'public-half-changed', restore],
  'ssh-ca-second-line': ['INVALID_CONFIG', 'public-half-changed', restore],
  'audit-key-removed': ['INVALID_CONFIG', 'public-half-changed', restore],
  'unknown-field-added': ['INVALID_CONFIG', 'bundle-invalid', /extra is not a field of a key bundle.*restore it from a backup/],
  'ciphertext-flipped': ['INVALID_CONFIG', 'seal', restore],
  'tag-flipped': ['INVALID_CONFIG', 'seal', restore],
  'tag-cut-to-12-bytes': ['INVALID_CONFIG', 'seal', /tag must be 16 bytes/],
  'iv-flipped': ['INVALID_CONFIG', 'seal', restore],
  'salt-flipped': ['INVALID_CONFIG', 'seal', restore],
  'seal-relabelled-former': ['INVALID_CONFIG', 'seal', restore],
  'seal-of-another-bundle': ['INVALID_CONFIG', 'public-half-changed', restore],
  'seal-removed': ['INVALID_CONFIG', 'bundle-invalid', /either seal or privateKeys/],
  'seal-replaced-by-plain-keys': ['INVALID_CONFIG', 'unauthenticated', /nothing vouches for the key bundle: it is not sealed/],
};

describe('golden bundles', () => {
  it('KEY-016 KEY-018 KEY-044 a bundle sealed in the current form opens, authenticated, for ever', () => {
    const bundle = openBundle(golden('current'), { secret });
    assert.equal(bundle.authenticated, true);
    assert.equal(bundle.trustDomain, trustDomain);
    assert.equal(bundleDigest(bundle), currentDigest);
    assert.equal(bundleDigest(readPublicBundle(golden('current'))), currentDigest);
  });

  it('KEY-036 KEY-037 a bundle from before the optional keys opens, and lacks them', () => {
    const bundle = openBundle(golden('without-optional-keys'), { secret });
    assert.equal(bundle.authenticated, true);
    for (const name of ['auditSigning', 'execTicketKey', 'sshCa', 'sandboxSshCa', 'commandSigning'] as const)
      assert.equal(bundle[name], undefined);
    assert.deepEqual(bundle.commandRoots.roots, []);
  });

  it('CLI-053 a bundle with a renewed CA opens with both certificates, the present one first', () => {
    const { nodeCa } = openBundle(golden('node-ca-renewed'), { secret });
    const [present, earlier] = nodeCa.certificates;
    assert.equal(nodeCa.certificates.length, 2);
    assert.equal(nodeCa.certificate, present);
    assert.ok((present?.notAfter ?? 0) > (earlier?.notAfter ?? 0));
  });

  it('KEY-022 another order of fields and other white space change nothing', () => {
    assert.notEqual(golden('current.reformatted'), golden('current'));
    const bundle = openBundle(golden('current.reformatted'), { secret });
    assert.equal(bundle.authenticated, true);
    assert.equal(bundleDigest(bundle), currentDigest);
  });

  it('KEY-043 the four classes: current, former, plaintext with and without a secret', () => {
    assert.deepEqual(authenticateBundle(golden('current'), secret), { seal: 'current', authenticated: true, unauthenticated: false });
    assert.deepEqual(authenticateBundle(golden('former'), secret), { seal: 'former', authenticated: false, unauthenticated: true });
    assert.deepEqual(authenticateBundle(golden('plaintext'), secret), { seal: 'plaintext', authenticated: false, unauthenticated: true });
    assert.deepEqual(authenticateBundle(golden('plaintext'), ''), { seal: 'plaintext', authenticated: false, unauthenticated: false });
  });

  it('KEY-041 what nothing vouches for loads only when that is allowed by name', () => {
    for (const [name, why] of [
      ['former', /sealed in the former form/],
      ['plaintext', /not sealed although BETTER_COMPUTE_SECRET is set/],
    ] as const) {
      assert.throws(() => openBundle(golden(name), { secret }), refusal('INVALID_CONFIG', 'unauthenticated', why), name);
      assert.equal(openBundle(golden(name), { secret, allowUnauthenticated: true }).authenticated, false, name);
    }
    assert.equal(openBundle(golden('plaintext')).seal, 'plaintext');
  });

  it('KEY-045 an offline root is a bundle whose root cannot sign', () => {
    const { rootCa } = openBundle(golden('offline-root'), { secret });
    assert.equal(rootCa.privateKey, undefined);
    assert.throws(() => rootCa.signer(), refusal('INVALID_STATE', 'key-offline', /private key of rootCa is not in the key bundle/));
  });

  for (const [name, [code, reason, message]] of Object.entries(tampered)) {
    it(`KEY-019 KEY-020 KEY-021 KEY-042 KEY-049 never loads: ${name.replaceAll('-', ' ')}`, () => {
      assert.throws(() => openBundle(golden(`tampered.${name}`), { secret }), refusal(code, reason, message));
    });
  }

  it('every tampered file is in the table', () => {
    const files = readdirSync(folder).flatMap((file) => /^tampered\.(.+)\.json$/.exec(file)?.[1] ?? []);
    assert.deepEqual(files.sort(), Object.keys(tampered).sort());
  });
});
