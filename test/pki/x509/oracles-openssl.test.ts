/** Other implementations as judges, in both directions: OpenSSL's command. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type Certificate,
  createCsr,
  encodePem,
  issueLeaf,
  oids,
  parseCertificate,
  parseCsr,
  parsePem,
  parsePemCertificates,
  verifyChain,
} from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createKey, now, trustDomain } from './authorities.ts';

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
const statement = `urn:bc:tpm-ak:000b:${'ab'.repeat(32)}`;
const identity = { trustDomain, siteId: 'fra1', nodeId: 'n1' };
const seconds = Math.floor(now / 1_000);

const pemOf = (der: Uint8Array): string => encodePem('CERTIFICATE', der);

(hasOpenssl ? describe : describe.skip)('pki/x509 oracle: openssl (skipped where the command is absent)', () => {
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
  let folder: string;
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'bc-x509-'));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));
  const file = (name: string, content: string | Uint8Array): string => {
    const path = join(folder, name);
    writeFileSync(path, content);
    return path;
  };
  const openssl = (args: readonly string[], input: string | Uint8Array = ''): { status: number | null; out: string } => {
    const { status, stdout, stderr } = spawnSync('openssl', args, { input });
    return { status, out: stdout.toString() + stderr.toString() };
  };

  it('openssl verify takes our chains for their purpose, strictly, and no other', () => {
    const verify = (
      leaf: Certificate,
      { purpose, ca, root }: { purpose: string; ca?: Uint8Array; root: Uint8Array },
    ): { status: number | null; out: string } =>
      openssl([
        'verify',
        '-x509_strict',
        '-attime',
        `${seconds}`,
        '-purpose',
        purpose,
        '-CAfile',
        file('root.pem', pemOf(root)),
        ...(ca === undefined ? [] : ['-untrusted', file('ca.pem', pemOf(ca))]),
        file('leaf.pem', pemOf(leaf.der)),
      ]);
    const root = all.root.certificate;
    for (const [leaf, purpose, ca] of [
      [leaves.node, 'sslclient', all.nodeCa],
      [leaves.gateway, 'sslserver', all.servingCa],
      [leaves.internal, 'sslserver', all.internalCa],
      [leaves.internal, 'sslclient', all.internalCa],
    ] as const) {
      const { status, out } = verify(leaf, { purpose, ca: ca.certificate, root });
      assert.equal(status, 0, out);
    }
    assert.equal(verify(leaves.worker, { purpose: 'any', root: all.commandRoot.certificate }).status, 0);
    assert.match(
      verify(leaves.node, { purpose: 'sslserver', ca: all.nodeCa.certificate, root }).out,
      /unsuitable certificate purpose|unsupported certificate purpose/,
    );
    assert.match(
      verify(leaves.node, { purpose: 'sslclient', ca: all.servingCa.certificate, root }).out,
      /unable to get local issuer certificate/,
    );
  });

  it('openssl x509 prints what we meant', () => {
    const { status, out } = openssl(['x509', '-inform', 'DER', '-noout', '-text'], leaves.node.der);
    assert.equal(status, 0, out);
    for (const line of [
      /Version: 3 \(0x2\)/,
      /Signature Algorithm: ecdsa-with-SHA256/,
      /Subject: OU = bc-role:node/,
      /X509v3 Key Usage: critical\s+Digital Signature\n/,
      /TLS Web Client Authentication\n/,
      /URI:spiffe:\/\/fleet\.example\/site\/fra1\/node\/n1, URI:urn:bc:tpm-ak:000b:(ab){32}/,
    ])
      assert.match(out, line);
    assert.match(
      openssl(['x509', '-inform', 'DER', '-noout', '-text'], all.nodeCa.certificate).out,
      /X509v3 Basic Constraints: critical\s+CA:TRUE, pathlen:0/,
    );
  });

  it('openssl asn1parse walks every byte', () => {
    for (const { der } of everyCertificate()) {
      const { status, out } = openssl(['asn1parse', '-inform', 'DER'], der);
      assert.equal(status, 0, out);
      assert.doesNotMatch(out, /error|BAD [A-Z]/);
    }
  });

  it('openssl req verifies our requests, and we verify its', async () => {
    const ours = await createCsr({ key: key.signer, subject: [{ oid: oids.commonName, value: 'n1' }] });
    const { status, out } = openssl(['req', '-inform', 'DER', '-noout', '-verify', '-subject'], ours);
    assert.equal(status, 0, out);
    assert.match(out, /verify OK/);
    assert.match(out, /subject=CN = n1/);
    const theirKey = join(folder, 'their.key');
    for (const extra of [[], ['-addext', 'subjectAltName=URI:spiffe://fleet.example/site/fra1/node/n1']]) {
      const made = openssl([
        'req',
        '-new',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:P-256',
        '-nodes',
        '-keyout',
        theirKey,
        '-subj',
        '/CN=theirs',
        '-sha256',
        ...extra,
      ]);
      const [der] = parsePem(
        'CERTIFICATE REQUEST',
        made.out.slice(made.out.indexOf('-----BEGIN CERT')).replace(/(-----END CERTIFICATE REQUEST-----)[^]*$/, '$1\n'),
      );
      assert.deepEqual(Buffer.from(parseCsr(der as Uint8Array).spki), spkiOfPem(readFileSync(theirKey)));
    }
  });

  it('we read and verify a chain that openssl made', () => {
    const [caKey, caPem, leafKey, csr, leafPem] = ['ca.key', 'ca.crt', 'leaf.key', 'leaf.csr', 'leaf.crt'].map((name) =>
      join(folder, name),
    ) as [string, string, string, string, string];
    const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-sha256'];
    const run = (args: readonly string[]): void => assert.equal(openssl(args).status, 0, args.join(' '));
    run([
      'req',
      '-x509',
      '-new',
      ...ec,
      '-keyout',
      caKey,
      '-out',
      caPem,
      '-days',
      '30',
      '-subj',
      '/O=theirs/CN=ca',
      '-addext',
      'keyUsage=critical,keyCertSign',
    ]);
    run(['req', '-new', ...ec, '-keyout', leafKey, '-out', csr, '-subj', '/OU=bc-role:node']);
    const extensions = file(
      'leaf.cnf',
      'keyUsage=critical,digitalSignature\nextendedKeyUsage=clientAuth\nsubjectAltName=URI:spiffe://fleet.example/site/a/node/b\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n',
    );
    run([
      'x509',
      '-req',
      '-in',
      csr,
      '-CA',
      caPem,
      '-CAkey',
      caKey,
      '-CAcreateserial',
      '-days',
      '1',
      '-sha256',
      '-extfile',
      extensions,
      '-out',
      leafPem,
    ]);
    const [ca, leaf] = [caPem, leafPem].map((path) => parsePemCertificates(readFileSync(path, 'utf8'))[0] as Uint8Array) as [
      Uint8Array,
      Uint8Array,
    ];
    const at = parseCertificate(leaf).notBefore + 1_000;
    const { leaf: verified } = verifyChain([leaf], { anchors: [ca], now: at, purpose: 'client' });
    assert.deepEqual(
      { role: verified.role, uriSans: verified.uriSans },
      { role: 'node', uriSans: ['spiffe://fleet.example/site/a/node/b'] },
    );
  });
});

/** The public half of a PEM private key, by node:crypto alone. */
const spkiOfPem = (pem: Buffer): Buffer => createPublicKey(createPrivateKey(pem)).export({ type: 'spki', format: 'der' });
