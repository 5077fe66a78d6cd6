import assert from 'node:assert/strict';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { connect, createServer } from 'node:tls';
import { day } from '../../../domain/time.ts';
import { parseCertificate, parsePemCertificates, spkiOf, spkiPin, verifyChain } from '../../../pki/x509/index.ts';
import { now, trustDomain } from '../../pki/support.ts';
import { type Bench, createBench, flagsOf } from './harness.ts';

describe('better-compute pki issue-gateway', () => {
  let bench: Bench;
  before(async () => {
    bench = createBench();
    assert.equal((await bench.run('pki', 'init', '--trust-domain', trustDomain)).exitCode, 0);
  });
  after(() => bench.close());

  const issue = (...flags: string[]) => bench.run('pki', 'issue-gateway', '--san', 'gw.eu-1.compute.example.com', ...flags);
  const chainOf = (file: string) => parsePemCertificates(readFileSync(file, 'utf8')).map(parseCertificate);

  it('CLI-021 CLI-022 CLI-023 CLI-025 issues key, leaf and serving CA, for 14 days, and prints what it wrote', async () => {
    const out = bench.path('tls');
    const run = await issue('--out', out);
    const [leaf, ca, ...rest] = chainOf(join(out, 'gateway.crt'));
    assert.ok(leaf !== undefined && ca !== undefined && rest.length === 0);
    assert.deepEqual(ca.der, bench.bundle().servingCa.certificate.der);
    assert.deepEqual(leaf.dnsSans, ['gw.eu-1.compute.example.com']);
    assert.equal(leaf.notAfter - now, 14 * day);
    const key = createPrivateKey(readFileSync(join(out, 'gateway.key')));
    assert.deepEqual(spkiOf(key), leaf.spki);
    assert.equal(key.asymmetricKeyDetails?.namedCurve, 'prime256v1');
    assert.ok(verifyChain([leaf.der], { anchors: [ca.der], now, purpose: 'server', serverName: 'gw.eu-1.compute.example.com' }));
    assert.throws(() => verifyChain([leaf.der], { anchors: [bench.bundle().nodeCa.certificate.der], now, purpose: 'server' }));
    assert.deepEqual(run, {
      exitCode: 0,
      out: `${[
        `key: ${out}/gateway.key`,
        `crt: ${out}/gateway.crt`,
        `nodeCa: ${out}/node-ca.pem`,
        'names: gw.eu-1.compute.example.com',
        `serial: ${leaf.serial}`,
        'notAfter: 2026-01-29T12:00:00Z',
        `servingCaPin: ${spkiPin(ca.spki)}`,
      ].join('\n')}\n`,
      err: '',
    });
  });

  it('CLI-024 the key has mode 0600, whatever the umask says', async () => {
    const umask = process.umask(0);
    try {
      await issue('--out', bench.path('umask'));
    } finally {
      process.umask(umask);
    }
    assert.equal(statSync(bench.path('umask/gateway.key')).mode & 0o777, 0o600);
  });

  it('CLI-022 CLI-026 a second run brings another key and leaves nothing else behind', async () => {
    await issue('--out', bench.path('again'));
    const first = readFileSync(bench.path('again/gateway.key'), 'utf8');
    await issue('--out', bench.path('again'));
    assert.notEqual(readFileSync(bench.path('again/gateway.key'), 'utf8'), first);
    assert.deepEqual(readdirSync(bench.path('again')), ['gateway.crt', 'gateway.key', 'node-ca.pem']);
  });

  it('CLI-026 of several at once, the key and the certificate of one are left, never of two', async () => {
    const out = bench.path('at-once');
    for (let round = 0; round < 3; round += 1) {
      const runs = await Promise.all(Array.from({ length: 4 }, () => issue('--out', out)));
      assert.ok(runs.every(({ exitCode }) => exitCode === 0));
      const [leaf] = chainOf(join(out, 'gateway.crt'));
      assert.deepEqual(spkiOf(createPrivateKey(readFileSync(join(out, 'gateway.key')))), leaf?.spki);
    }
    assert.deepEqual(readdirSync(out).sort(), ['gateway.crt', 'gateway.key', 'node-ca.pem']);
  });

  it('CLI-026 a file that cannot be replaced is INVALID_CONFIG', async () => {
    mkdirSync(bench.path('taken/gateway.key/x'), { recursive: true });
    const run = await issue('--out', bench.path('taken'));
    assert.deepEqual([run.exitCode, run.out], [3, '']);
    assert.match(run.err, /taken\/gateway\.key cannot be written/);
  });

  it('TLS-021 the files serve TLS 1.3 as they are, to a client that knows the root', async () => {
    bench.at(Date.now());
    await bench.run('pki', 'issue-gateway', '--san', 'gw.test', '--out', bench.path('served'));
    bench.at(now);
    const read = (name: string): Buffer => readFileSync(bench.path(`served/${name}`));
    const files = { key: read('gateway.key'), cert: read('gateway.crt'), ca: read('node-ca.pem') };
    const server = createServer({ ...files, minVersion: 'TLSv1.3', requestCert: true, rejectUnauthorized: false }, (socket) =>
      socket.end(),
    );
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const ca = new X509Certificate(bench.bundle().rootCa.certificate.der).toString();
    const client = connect({ port, host: '127.0.0.1', servername: 'gw.test', ca });
    try {
      await once(client, 'secureConnect');
      assert.deepEqual([client.authorized, client.getProtocol()], [true, 'TLSv1.3']);
    } finally {
      client.destroy();
      server.close();
    }
  });

  it('KEY-041 loads an unauthenticated bundle only with the variable that every process needs', async () => {
    copyFileSync(join(import.meta.dirname, '../../golden/bundles/former.json'), bench.path('former.json'));
    const flags = ['--out', bench.path('former'), '--pki', bench.path('former.json')];
    const refused = await issue(...flags);
    assert.deepEqual(
      [
        refused.exitCode,
        /nothing vouches for the key bundle.*\nhint: compare its pins and seal it: better-compute pki reseal/.test(refused.err),
      ],
      [3, true],
    );
    bench.env['BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED'] = '1';
    assert.equal((await issue(...flags)).exitCode, 0);
    delete bench.env['BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED'];
  });

  it('CLI-027 has these flags', async () => {
    assert.deepEqual(flagsOf((await bench.run('pki', 'issue-gateway', '--help')).out), ['--san', '--out', '--name', '--days', '--pki']);
  });

  const good: readonly [string, string[], (leaf: ReturnType<typeof parseCertificate>) => void][] = [
    ['1 day', ['--days', '1'], (leaf) => assert.equal(leaf.notAfter - now, day)],
    ['90 days', ['--days', '90'], (leaf) => assert.equal(leaf.notAfter - now, 90 * day)],
    [
      'several names and addresses',
      ['--san', 'b.example.com', '192.0.2.1', '2001:db8::1'],
      (leaf) => {
        assert.deepEqual(leaf.dnsSans, ['gw.eu-1.compute.example.com', 'b.example.com']);
        assert.deepEqual(leaf.ipSans, ['192.0.2.1', '2001:db8::1']);
      },
    ],
  ];
  for (const [name, flags, check] of good) {
    it(`CLI-027 takes ${name}`, async () => {
      const run = await issue('--out', bench.path('good'), ...flags);
      assert.equal(run.exitCode, 0, run.err);
      check(chainOf(bench.path('good/gateway.crt'))[0] as ReturnType<typeof parseCertificate>);
    });
  }

  it('CLI-027 --name names the files; without --out they go to the folder of the TLS files', async () => {
    bench.env['BETTER_COMPUTE_TLS'] = bench.path('default-tls');
    assert.equal((await issue('--name', 'gw-2')).exitCode, 0);
    assert.deepEqual(readdirSync(bench.path('default-tls')), ['gw-2.crt', 'gw-2.key', 'node-ca.pem']);
  });

  const bad: readonly [string, string[], RegExp][] = [
    ['no --san', ['pki', 'issue-gateway'], /required option '--san <name\.\.\.>' not specified/],
    ['0 days', ['pki', 'issue-gateway', '--san', 'gw', '--days', '0'], /argument '0' is invalid\. It must be a whole number from 1 to 90/],
    ['91 days', ['pki', 'issue-gateway', '--san', 'gw', '--days', '91'], /from 1 to 90/],
    ['days that are no number', ['pki', 'issue-gateway', '--san', 'gw', '--days', '7d'], /from 1 to 90/],
    [
      'an upper-case name',
      ['pki', 'issue-gateway', '--san', 'GW.example.com'],
      /--san GW\.example\.com is neither a lower-case DNS name nor an IP address/,
    ],
    ['a wild card', ['pki', 'issue-gateway', '--san', '*.example.com'], /neither a lower-case DNS name/],
    ['a URL', ['pki', 'issue-gateway', '--san', 'https://gw'], /neither a lower-case DNS name/],
    ['an empty name', ['pki', 'issue-gateway', '--san', ''], /neither a lower-case DNS name/],
    ['a file name that leaves the folder', ['pki', 'issue-gateway', '--san', 'gw', '--name', '../gw'], /It must be a file name/],
    ['an unknown flag', ['pki', 'issue-gateway', '--san', 'gw', '--years', '1'], /unknown option '--years'/],
  ];
  for (const [name, argv, message] of bad) {
    it(`CLI-027 refuses ${name}`, async () => {
      const run = await bench.run(...argv, ...(argv.includes('--out') ? [] : ['--out', bench.path('bad')]));
      assert.match(run.err, message);
      assert.deepEqual([run.exitCode, run.out], [2, '']);
      assert.equal(readdirSync(bench.folder).includes('bad'), false);
    });
  }
});
