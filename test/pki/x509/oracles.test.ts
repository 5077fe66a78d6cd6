/** Other implementations as judges, in both directions: node's X509Certificate, @peculiar/x509. */
import assert from 'node:assert/strict';
import { webcrypto, X509Certificate } from 'node:crypto';
import './reflect.ts';
import * as peculiar from '@peculiar/x509';
import { type Certificate, createCsr, issueLeaf, parseCsr, verifyChain } from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createKey, now, trustDomain } from './authorities.ts';

const statement = `urn:bc:tpm-ak:000b:${'ab'.repeat(32)}`;
const identity = { trustDomain, siteId: 'fra1', nodeId: 'n1' };
describe('pki/x509 oracles', () => {
  let all: Authorities;
  let leaves: Readonly<Record<'node' | 'gateway' | 'internal' | 'worker', Certificate>>;
  const key = createKey();
  before(async () => {
    all = await createAuthorities();
    leaves = {
      node: await issueLeaf({ ca: all.nodeCa, profile: 'node', spki: key.spki, identity, sans: { uris: [statement] }, now }),
      gateway: await issueLeaf({
        ca: all.servingCa,
        profile: 'gateway',
        spki: key.spki,
        sans: { dns: ['gw.example'], ips: ['192.0.2.7', '2001:db8::1'] },
        now,
      }),
      internal: await issueLeaf({ ca: all.internalCa, profile: 'internal', spki: key.spki, sans: { dns: ['localhost'] }, now }),
      worker: await issueLeaf({ ca: all.commandRoot, profile: 'worker', spki: key.spki, commonName: 'worker 7', now }),
    };
  });
  const everyCertificate = (): Certificate[] => [...Object.values(all).map(({ parsed }) => parsed), ...Object.values(leaves)];

  describe('node:crypto', () => {
    it('reads the fields that we write', () => {
      for (const ours of everyCertificate()) {
        const theirs = new X509Certificate(ours.der);
        assert.equal(theirs.serialNumber.toLowerCase(), ours.serial);
        assert.equal(Date.parse(theirs.validFrom), ours.notBefore);
        assert.equal(Date.parse(theirs.validTo), ours.notAfter);
        assert.equal(theirs.ca, ours.isCa);
        assert.deepEqual(theirs.publicKey.export({ type: 'spki', format: 'der' }), Buffer.from(ours.spki));
        assert.deepEqual(theirs.keyUsage ?? null, ours.ekus);
      }
      assert.equal(new X509Certificate(leaves.node.der).subjectAltName, `URI:spiffe://fleet.example/site/fra1/node/n1, URI:${statement}`);
      assert.equal(new X509Certificate(leaves.node.der).subject, 'OU=bc-role:node');
      assert.equal(new X509Certificate(leaves.gateway.der).checkHost('gw.example'), 'gw.example');
      assert.equal(new X509Certificate(leaves.gateway.der).checkIP('2001:db8::1'), '2001:db8::1');
    });

    it('verifies our signatures and finds our issuers', () => {
      for (const [leaf, ca] of [
        [leaves.node, all.nodeCa],
        [leaves.gateway, all.servingCa],
        [leaves.internal, all.internalCa],
        [leaves.worker, all.commandRoot],
        [all.nodeCa.parsed, all.root],
      ] as const) {
        const theirs = new X509Certificate(leaf.der);
        assert.ok(theirs.verify(ca.parsed.publicKey));
        assert.ok(theirs.checkIssued(new X509Certificate(ca.certificate)));
      }
    });
  });

  describe('@peculiar/x509', () => {
    const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;
    before(() => peculiar.cryptoProvider.set(webcrypto));

    it('reads the fields that we write, and verifies', async () => {
      for (const [ours, ca] of [
        [leaves.node, all.nodeCa],
        [leaves.gateway, all.servingCa],
        [all.nodeCa.parsed, all.root],
      ] as const) {
        const theirs = new peculiar.X509Certificate(Uint8Array.from(ours.der));
        assert.equal(theirs.serialNumber, ours.serial);
        assert.equal(theirs.notBefore.getTime(), ours.notBefore);
        assert.equal(theirs.notAfter.getTime(), ours.notAfter);
        assert.equal(theirs.getExtension(peculiar.SubjectKeyIdentifierExtension)?.keyId, ours.ski);
        assert.equal(theirs.getExtension(peculiar.AuthorityKeyIdentifierExtension)?.keyId, ours.aki);
        assert.ok(await theirs.verify({ publicKey: new peculiar.X509Certificate(Uint8Array.from(ca.certificate)), date: new Date(now) }));
      }
      const names = new peculiar.X509Certificate(Uint8Array.from(leaves.node.der))
        .getExtension(peculiar.SubjectAlternativeNameExtension)
        ?.names.items.map(({ type, value }) => [type, value]);
      assert.deepEqual(names, [
        ['url', 'spiffe://fleet.example/site/fra1/node/n1'],
        ['url', statement],
      ]);
      assert.ok(await new peculiar.Pkcs10CertificateRequest(Uint8Array.from(await createCsr({ key: key.signer }))).verify());
    });

    it('we read and verify what it makes', async () => {
      const caKeys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
      const leafKeys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
      const [notBefore, notAfter] = [new Date(now - 60_000), new Date(now + 3_600_000)];
      const ca = await peculiar.X509CertificateGenerator.createSelfSigned({
        serialNumber: '0102',
        name: 'CN=theirs',
        notBefore,
        notAfter,
        keys: caKeys,
        signingAlgorithm: algorithm,
        extensions: [
          new peculiar.BasicConstraintsExtension(true, 0, true),
          new peculiar.KeyUsagesExtension(peculiar.KeyUsageFlags.keyCertSign, true),
          await peculiar.SubjectKeyIdentifierExtension.create(caKeys.publicKey),
        ],
      });
      const leaf = await peculiar.X509CertificateGenerator.create({
        serialNumber: '0304',
        subject: 'OU=bc-role:site',
        issuer: ca.subject,
        notBefore,
        notAfter,
        publicKey: leafKeys.publicKey,
        signingKey: caKeys.privateKey,
        signingAlgorithm: algorithm,
        extensions: [
          new peculiar.KeyUsagesExtension(peculiar.KeyUsageFlags.digitalSignature, true),
          new peculiar.ExtendedKeyUsageExtension([peculiar.ExtendedKeyUsage.clientAuth]),
          new peculiar.SubjectAlternativeNameExtension([{ type: 'url', value: 'spiffe://fleet.example/site/a/node/b' }]),
          await peculiar.AuthorityKeyIdentifierExtension.create(caKeys.publicKey),
        ],
      });
      const verified = verifyChain([new Uint8Array(leaf.rawData)], { anchors: [new Uint8Array(ca.rawData)], now, purpose: 'client' });
      assert.deepEqual({ role: verified.leaf.role, serial: verified.leaf.serial }, { role: 'site', serial: '0304' });
      const request = await peculiar.Pkcs10CertificateRequestGenerator.create({
        name: 'CN=x',
        keys: leafKeys,
        signingAlgorithm: algorithm,
      });
      assert.deepEqual(Buffer.from(parseCsr(new Uint8Array(request.rawData)).spki), Buffer.from(verified.leaf.spki));
    });
  });
});
