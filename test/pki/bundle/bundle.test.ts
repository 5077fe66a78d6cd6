import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { day } from '../../../domain/time.ts';
import {
  bundleDigest,
  createBundle,
  createBundleWithOfflineRoot,
  encodeBundle,
  foundingKeyNames,
  keyNames,
  openBundle,
  type PkiBundle,
  readPublicBundle,
} from '../../../pki/bundle/index.ts';
import { issueCa, verifyRawSignature } from '../../../pki/x509/index.ts';
import { edited, now, type OpenDocument, refusal, secret, sharedBundle, trustDomain } from '../support.ts';

const authorities = ['rootCa', 'nodeCa', 'servingCa', 'internalCa'] as const;

describe('a new bundle', () => {
  let bundle: PkiBundle;
  let plaintext: string;
  before(async () => {
    bundle = await sharedBundle();
    plaintext = encodeBundle(bundle, { plaintext: true });
  });

  const plain = (change: (document: OpenDocument) => void): string => edited(plaintext, change);

  it('KEY-010 KEY-028 CLI-003 holds every key of the table once', () => {
    for (const name of foundingKeyNames) assert.ok(bundle[name] !== undefined, name);
    assert.equal(bundle.commandSigning?.id, bundle.commandRoots.signing);
    assert.equal(bundle.commandRoots.roots.length, 1);
    assert.equal(bundle.generation, 1);
  });

  it('KEY-004 KEY-005 is P-256 everywhere but for the two SSH authorities, which are Ed25519', () => {
    for (const name of foundingKeyNames) {
      const key = bundle[name];
      const { asymmetricKeyType, asymmetricKeyDetails } = key?.privateKey ?? {};
      const isSsh = name === 'sshCa' || name === 'sandboxSshCa';
      assert.equal(asymmetricKeyType, isSsh ? 'ed25519' : 'ec', name);
      if (!isSsh) assert.equal(asymmetricKeyDetails?.namedCurve, 'prime256v1', name);
    }
    assert.match(bundle.sshCa?.publicKey ?? '', /^ssh-ed25519 [A-Za-z0-9+/=]+ compute\.example\.com ssh ca$/);
    assert.match(bundle.sandboxSshCa?.publicKey ?? '', /^ssh-ed25519 [A-Za-z0-9+/=]+ compute\.example\.com sandbox ssh ca$/);
  });

  it('KEY-007 KEY-009 gives no key two jobs', () => {
    const spkis = keyNames.flatMap((name) => {
      const key = bundle[name];
      return key !== undefined && 'spki' in key ? [Buffer.from(key.spki).toString('hex')] : [];
    });
    spkis.push(Buffer.from(bundle.commandSigning?.spki ?? []).toString('hex'));
    assert.equal(new Set(spkis).size, spkis.length);
    assert.notEqual(bundle.sshCa?.publicKey.split(' ')[1], bundle.sandboxSshCa?.publicKey.split(' ')[1]);
  });

  it('KEY-010 KEY-011 gives each authority its lifetime, capped by the root', () => {
    const years = (name: (typeof authorities)[number]): number => (bundle[name].certificate.notAfter - now) / (365 * day);
    assert.ok(Math.abs(years('rootCa') - 10) < 0.02, String(years('rootCa')));
    for (const name of ['nodeCa', 'servingCa', 'internalCa'] as const) {
      assert.ok(Math.abs(years(name) - 2) < 0.02, name);
      assert.ok(bundle[name].certificate.notAfter <= bundle.rootCa.certificate.notAfter);
    }
  });

  it('KEY-021 refuses a certificate of an authority that bears the name of the root and not its signature', async () => {
    const other = await createBundle({ trustDomain, now });
    assert.deepEqual(other.rootCa.certificate.subject.der, bundle.rootCa.certificate.subject.der);
    for (const name of ['nodeCa', 'servingCa', 'internalCa'] as const) {
      const forged = await issueCa({
        profile: name,
        trustDomain,
        spki: bundle[name].spki,
        issuer: { certificate: other.rootCa.certificate.der, signer: other.rootCa.signer() },
        now,
      });
      const certificates = [forged];
      const text = encodeBundle({ ...bundle, [name]: { ...bundle[name], certificate: forged, certificates } }, { secret });
      assert.throws(
        () => openBundle(text, { secret }),
        refusal('INVALID_CONFIG', 'bundle-invalid', new RegExp(`${name}.certificates\\[0\\] is not signed by the root CA`)),
      );
    }
  });

  it('A-PKI-03 the command root is an anchor of its own', () => {
    const root = bundle.commandSigning?.certificate;
    assert.deepEqual(root?.issuer.der, root?.subject.der);
    assert.notDeepEqual(root?.issuer.der, bundle.rootCa.certificate.subject.der);
  });

  it('ID-003 ID-004 refuses a name that is no trust domain', async () => {
    for (const name of ['', 'Compute.example.com', 'a b', 'x'.repeat(256)]) {
      await assert.rejects(
        createBundle({ trustDomain: name, now }),
        refusal('INVALID_INPUT', 'trust-domain', /is not a trust domain/),
        name,
      );
    }
  });

  it('KEY-024 says its format and version, and refuses another', () => {
    const document: OpenDocument = JSON.parse(plaintext);
    assert.equal(document.format, 'better-compute-pki');
    assert.equal(document.version, 1);
    for (const change of [(d: OpenDocument) => (d.format = 'other'), (d: OpenDocument) => (d.version = 2)]) {
      assert.throws(() => openBundle(plain(change)), refusal('INVALID_CONFIG', 'bundle-invalid', /must be/));
    }
  });

  it('KEY-015 KEY-025 KEY-026 shows certificates and public keys, and private keys only in plaintext', () => {
    const sealed = encodeBundle(bundle, { secret });
    assert.equal(plaintext.includes('BEGIN PRIVATE KEY'), true);
    assert.equal(sealed.includes('PRIVATE KEY'), false);
    const { privateKeys: _keys, ...plainHalf }: OpenDocument = JSON.parse(plaintext);
    const { seal: _seal, ...sealedHalf }: OpenDocument = JSON.parse(sealed);
    assert.deepEqual(sealedHalf, plainHalf);
    assert.deepEqual(readPublicBundle(sealed).nodeCa.certificate.der, bundle.nodeCa.certificate.der);
  });

  it('KEY-027 opens to keys that sign', async () => {
    const opened = openBundle(encodeBundle(bundle, { secret }), { secret });
    for (const key of [opened.joinSigning, opened.rootCa, opened.commandSigning, opened.auditSigning, opened.execTicketKey]) {
      const input = Buffer.from('words');
      assert.ok(key !== undefined);
      assert.ok(verifyRawSignature({ spki: key.spki, input, signature: await key.signer().sign(input) }));
    }
  });

  it('KEY-022 writes, reads and writes the same document', () => {
    const once: OpenDocument = JSON.parse(plaintext);
    const twice: OpenDocument = JSON.parse(encodeBundle(openBundle(plaintext), { plaintext: true }));
    assert.deepEqual(twice, once);
    assert.equal(bundleDigest(openBundle(plaintext)), bundleDigest(bundle));
  });

  it('KEY-036 KEY-037 lacks an optional key and still loads; lacks another and does not', () => {
    for (const name of ['auditSigning', 'execTicketKey', 'sshCa', 'sandboxSshCa'] as const) {
      const text = plain((d) => {
        delete d.keys[name];
        delete d.privateKeys[name];
      });
      assert.equal(openBundle(text)[name], undefined, name);
    }
    const unsigned = openBundle(
      plain((d) => {
        delete d.privateKeys[`commandRoot:${d.commandRoots.signing}`];
        delete d.commandRoots;
      }),
    );
    assert.equal(unsigned.commandSigning, undefined);
    assert.deepEqual(unsigned.commandRoots.roots, []);
    for (const name of ['rootCa', 'nodeCa', 'servingCa', 'internalCa', 'joinSigning', 'joinEncryption', 'rekeyEncryption']) {
      const text = plain((d) => {
        delete d.keys[name];
        delete d.privateKeys[name];
      });
      assert.throws(() => openBundle(text), refusal('INVALID_CONFIG', 'bundle-invalid', new RegExp(`keys\\.${name} is missing`)), name);
    }
  });

  it('KEY-037 a key without its private half is refused, but for an offline root and a root kept elsewhere', () => {
    for (const name of ['nodeCa', 'joinSigning', 'joinEncryption', 'sshCa', 'auditSigning']) {
      const text = plain((d) => delete d.privateKeys[name]);
      assert.throws(() => openBundle(text), refusal('INVALID_CONFIG', 'bundle-invalid', new RegExp(`${name} has no private key`)), name);
    }
    assert.equal(openBundle(plain((d) => delete d.privateKeys['rootCa'])).rootCa.privateKey, undefined);
    const kept = openBundle(plain((d) => delete d.privateKeys[`commandRoot:${d.commandRoots.signing}`]));
    assert.throws(
      () => kept.commandSigning?.signer(),
      refusal('INVALID_STATE', 'key-offline', /commandRoot:[0-9a-f]{64} is not in the key bundle/),
    );
  });

  it('KEY-040 refuses an SSH authority of more than one line, or of another kind', () => {
    const other = bundle.sandboxSshCa?.publicKey ?? '';
    for (const change of [
      (line: string) => `${line}\n${other}`,
      (line: string) => `${line}\r${other}`,
      (line: string) => `${line}\u2028${other}`,
      (line: string) => `${line}\n`,
      (line: string) => `\n${line}`,
      (line: string) => line.replace('ssh-ed25519', 'ssh-rsa'),
      (line: string) => line.replace('AAAA', 'AAAB'),
      () => 'ssh-ed25519',
      () => '',
    ]) {
      const text = plain((d) => (d.keys.sshCa.publicKey = change(d.keys.sshCa.publicKey)));
      assert.throws(
        () => openBundle(text),
        refusal('INVALID_CONFIG', 'bundle-invalid', /keys\.sshCa\.publicKey (is not exactly one line|must not be empty)/),
      );
    }
  });

  it('A-PKI-02 takes an ECDSA P-256 SSH authority too', () => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
    const part = (bytes: Buffer): Buffer => Buffer.concat([Buffer.from([0, 0, 0, bytes.length]), bytes]);
    const point = Buffer.concat([Buffer.from([4]), Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]);
    const blob = Buffer.concat([part(Buffer.from('ecdsa-sha2-nistp256')), part(Buffer.from('nistp256')), part(point)]);
    const text = plain((d) => {
      d.keys.sshCa.publicKey = `ecdsa-sha2-nistp256 ${blob.toString('base64')} an own key`;
      d.privateKeys.sshCa = privateKey.export({ type: 'pkcs8', format: 'pem' });
    });
    assert.match(openBundle(text).sshCa?.publicKey ?? '', /^ecdsa-sha2-nistp256 /);
  });

  it('KEY-007 refuses a private key under another name, a shared key and a key nobody knows', () => {
    const swapped = plain((d) => ([d.privateKeys.nodeCa, d.privateKeys.servingCa] = [d.privateKeys.servingCa, d.privateKeys.nodeCa]));
    assert.throws(
      () => openBundle(swapped),
      refusal('INVALID_CONFIG', 'bundle-invalid', /nodeCa has a private key that is not the one.*servingCa has/),
    );
    const shared = plain((d) => {
      d.keys.joinEncryption = d.keys.joinSigning;
      d.privateKeys.joinEncryption = d.privateKeys.joinSigning;
    });
    assert.throws(() => openBundle(shared), refusal('INVALID_CONFIG', 'bundle-invalid', /joinEncryption uses the key of joinSigning/));
    const stray = plain((d) => (d.privateKeys.spare = d.privateKeys.nodeCa));
    assert.throws(() => openBundle(stray), refusal('INVALID_CONFIG', 'bundle-invalid', /privateKeys\.spare belongs to no public key/));
    const sshOther = plain((d) => (d.privateKeys.sshCa = d.privateKeys.sandboxSshCa));
    assert.throws(() => openBundle(sshOther), refusal('INVALID_CONFIG', 'bundle-invalid', /sshCa has a private key that is not the one/));
  });

  it('CLI-044 refuses a certificate with another key behind the first, and one the root did not issue', () => {
    const appended = plain((d) => d.keys.nodeCa.certificates.push(...d.keys.servingCa.certificates));
    assert.throws(
      () => openBundle(appended),
      refusal('INVALID_CONFIG', 'bundle-invalid', /nodeCa\.certificates\[1\] has another key or subject/),
    );
    const twice = plain((d) => d.keys.nodeCa.certificates.push(...d.keys.nodeCa.certificates));
    assert.equal(openBundle(twice).nodeCa.certificates.length, 2);
  });

  it('H-19 refuses PEM that would not be written so: a second block, another line length, other line ends, text around it', () => {
    const variants: ((pem: string) => string)[] = [
      (pem) => pem + pem,
      (pem) => pem.replaceAll('\n', '\r\n'),
      (pem) => pem.replace(/-----\n/, '-----\n\n'),
      (pem) => pem.replace(/(?<=[^-])\n(?=[^-])/, ''),
      (pem) => pem.trimEnd(),
      (pem) => `subject: x\n${pem}`,
      (pem) => pem.replaceAll('CERTIFICATE', 'TRUSTED CERTIFICATE').replaceAll('PUBLIC KEY', 'KEY'),
    ];
    for (const vary of variants) {
      const certificate = plain((d) => (d.keys.nodeCa.certificates[0] = vary(d.keys.nodeCa.certificates[0])));
      assert.throws(
        () => openBundle(certificate),
        refusal('INVALID_CONFIG', 'bundle-invalid', /nodeCa\.certificates\[0\] is not one PEM certificate/),
      );
      const key = plain((d) => (d.keys.joinSigning.publicKey = vary(d.keys.joinSigning.publicKey)));
      assert.throws(() => openBundle(key), refusal('INVALID_CONFIG', 'bundle-invalid', /joinSigning\.publicKey is not one PEM public key/));
    }
  });

  it('H-19 ROT-033 refuses a root whose id is not its hash, a signing root it does not have and a rotation of strangers', () => {
    const ghost = 'ab'.repeat(32);
    const cases: [(d: OpenDocument) => void, RegExp][] = [
      [(d) => (d.commandRoots.roots[0].id = ghost), /id is not the SHA-256 of its certificate/],
      [(d) => (d.commandRoots.signing = ghost), /commandRoots\.signing is not one of the roots/],
      [
        (d) =>
          (d.commandRoots.rotation = {
            id: 'r',
            stage: 'added',
            oldRoot: ghost,
            newRoot: ghost,
            addedAt: 1,
            switchedAt: null,
            aborted: false,
          }),
        /commandRoots\.rotation names root abab/,
      ],
      [(d) => d.commandRoots.roots.push(d.commandRoots.roots[0]), /names a root twice/],
    ];
    for (const [change, message] of cases)
      assert.throws(() => openBundle(plain(change)), refusal('INVALID_CONFIG', 'bundle-invalid', message));
  });

  it('names every problem of a file at once', () => {
    const text = plain((d) => {
      d.generation = 0;
      d.trustVersion = 1.5;
      d.trustDomain = 7;
      d.republish = {};
      d.keys.nodeCa = [];
    });
    assert.throws(
      () => openBundle(text),
      refusal(
        'INVALID_CONFIG',
        'bundle-invalid',
        /trustDomain must be text; generation must be a whole number of at least 1; trustVersion must.*; keys\.nodeCa must be an object; .*and 4 more/,
      ),
    );
  });

  for (const [name, text] of Object.entries({
    nothing: '',
    'no JSON': '{',
    'a list': '[]',
    null: 'null',
    'deep nesting': `{"a":${'['.repeat(100_000)}`,
  })) {
    it(`KEY-024 a file of ${name} is INVALID_CONFIG`, () => {
      assert.throws(() => openBundle(text), refusal('INVALID_CONFIG', 'bundle-invalid', /^the key bundle is not (JSON|a JSON object)/));
    });
  }

  it('KEY-045 leaves an offline root out of the bundle and out of every write-back', async () => {
    const { bundle: offline, rootKey } = await createBundleWithOfflineRoot({ trustDomain, now });
    const text = encodeBundle(openBundle(encodeBundle(offline, { plaintext: true })), { plaintext: true });
    assert.equal(Object.hasOwn(JSON.parse(text).privateKeys, 'rootCa'), false);
    assert.equal(text.includes(rootKey.export({ type: 'pkcs8', format: 'der' }).toString('base64').slice(48, 80)), false);
    assert.throws(() => openBundle(text).rootCa.signer(), refusal('INVALID_STATE', 'key-offline', /rootCa/));
  });
});
