import assert from 'node:assert/strict';
import { chmodSync, copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { day, hour } from '../../../domain/time.ts';
import { createBundle, createBundleWithOfflineRoot, encodeBundle, openBundle } from '../../../pki/bundle/index.ts';
import { encodePem, spkiPin } from '../../../pki/x509/index.ts';
import { now, secret, trustDomain } from '../../pki/support.ts';
import { type Bench, createBench, flagsOf } from './harness.ts';

const later = now + 300 * day;
const pemOf = (key: { export(options: { type: 'pkcs8'; format: 'der' }): Buffer }): string =>
  encodePem('PRIVATE KEY', key.export({ type: 'pkcs8', format: 'der' }));

describe('better-compute pki renew-ca', () => {
  let bench: Bench;
  let online: string;
  let offline: string;
  let rootKey: string;
  before(async () => {
    online = encodeBundle(await createBundle({ trustDomain, now }), { secret });
    const made = await createBundleWithOfflineRoot({ trustDomain, now });
    offline = encodeBundle(made.bundle, { secret });
    rootKey = pemOf(made.rootKey);
  });
  beforeEach(() => {
    bench = createBench();
    bench.at(later);
    writeFileSync(bench.path('pki.json'), online);
    writeFileSync(bench.path('root-ca.key'), rootKey, { mode: 0o600 });
  });
  afterEach(() => bench.close());
  const file = (): string => readFileSync(bench.path('pki.json'), 'utf8');

  it('CLI-049 CLI-050 CLI-051 CLI-056 renews, writes the bundle back sealed, prints the CA, the new end and serial', async () => {
    const before = bench.bundle();
    const run = await bench.run('pki', 'renew-ca', '--ca', 'node');
    const after = bench.bundle();
    const { certificate } = after.nodeCa;
    assert.deepEqual([after.authenticated, after.seal, after.generation], [true, 'current', before.generation + 1]);
    assert.notEqual(certificate.serial, before.nodeCa.certificate.serial);
    assert.deepEqual([after.nodeCa.spki, certificate.subject.der], [before.nodeCa.spki, before.nodeCa.certificate.subject.der]);
    assert.deepEqual(run, {
      exitCode: 0,
      out: `ca: node\nnotAfter: 2028-11-10T12:00:00Z\nserial: ${certificate.serial}\n`,
      err:
        'next: roll the bundle out to every process before 2028-01-15T12:00:00Z, when the earlier certificate ends; ' +
        'give every gateway the new node-ca.pem, which pki issue-gateway writes\n',
    });
  });

  it('CLI-054 CLI-057 for the serving CA also the pin, which did not change; in JSON the same', async () => {
    const pin = spkiPin(bench.bundle().servingCa.spki);
    const { exitCode, out } = await bench.run('pki', 'renew-ca', '--ca', 'serving', '--json');
    const { servingCa } = bench.bundle();
    assert.equal(exitCode, 0);
    assert.deepEqual(JSON.parse(out), {
      ca: 'serving',
      notAfter: '2028-11-10T12:00:00Z',
      serial: servingCa.certificate.serial,
      servingCaPin: pin,
    });
    assert.match((await bench.run('pki', 'show')).out, new RegExp(`^servingCaPin: ${pin.replaceAll(/[+/]/g, '.')}$`, 'm'));
    const internal = JSON.parse((await bench.run('pki', 'renew-ca', '--ca', 'internal', '--json')).out) as object;
    assert.deepEqual(Object.keys(internal), ['ca', 'notAfter', 'serial']);
  });

  it('CLI-011 CLI-052 KEY-045 an offline root: needed here and nowhere else, and never written into the bundle', async () => {
    writeFileSync(bench.path('pki.json'), offline);
    assert.deepEqual(await bench.run('pki', 'renew-ca', '--ca', 'node'), {
      exitCode: 4,
      out: '',
      err: "error: the root's private key is not in the key bundle\nhint: give the offline root key: --root-key FILE\n",
    });
    assert.equal(file(), offline);
    const others = [
      ['pki', 'show'],
      ['pki', 'issue-gateway', '--san', 'gw.test', '--out', bench.path('tls')],
      ['pki', 'reseal'],
    ];
    for (const argv of others) assert.equal((await bench.run(...argv)).exitCode, 0, argv.join(' '));
    const run = await bench.run('pki', 'renew-ca', '--ca', 'node', '--root-key', bench.path('root-ca.key'));
    assert.deepEqual([run.exitCode, run.err.startsWith('next:')], [0, true]);
    assert.equal(bench.bundle().rootCa.privateKey, undefined);
  });

  it('CLI-052 warns when others can read the root key', async () => {
    writeFileSync(bench.path('pki.json'), offline);
    chmodSync(bench.path('root-ca.key'), 0o644);
    const run = await bench.run('pki', 'renew-ca', '--ca', 'node', '--root-key', bench.path('root-ca.key'));
    assert.equal(run.exitCode, 0);
    assert.match(run.err, /^warning: .*root-ca\.key can be read by others: keep the root key where only you can read it\n/);
  });

  it('CLI-058 refuses to vouch: with the variable, and for a bundle that nothing vouches for', async () => {
    bench.env['BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED'] = '1';
    const run = await bench.run('pki', 'renew-ca', '--ca', 'node');
    assert.deepEqual([run.exitCode, run.out], [4, '']);
    assert.match(run.err, /hint: unset BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED; .*better-compute pki reseal\n$/);
    assert.equal(file(), online);
    delete bench.env['BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED'];
    copyFileSync(join(import.meta.dirname, '../../golden/bundles/former.json'), bench.path('pki.json'));
    const former = await bench.run('pki', 'renew-ca', '--ca', 'node');
    assert.deepEqual([former.exitCode, /nothing vouches for the key bundle/.test(former.err)], [3, true]);
  });

  it('CLI-030 CLI-051 without a secret: a plaintext bundle stays plaintext, a sealed one is MISSING_ENV', async () => {
    delete bench.env['BETTER_COMPUTE_SECRET'];
    assert.deepEqual((await bench.run('pki', 'renew-ca', '--ca', 'node')).exitCode, 2);
    assert.equal(file(), online);
    writeFileSync(bench.path('pki.json'), encodeBundle(openBundle(online, { secret }), { plaintext: true }));
    assert.equal((await bench.run('pki', 'renew-ca', '--ca', 'node')).exitCode, 0);
    assert.equal(openBundle(file()).seal, 'plaintext');
  });

  it('CLI-059 has exactly these flags', async () => {
    const { out } = await bench.run('pki', 'renew-ca', '--help');
    assert.deepEqual(flagsOf(out), ['--ca', '--root-key', '--pki']);
    assert.match(out, /Examples:\n {2}\$ better-compute pki renew-ca --ca node/);
  });

  const good: readonly [string, string[]][] = [
    ['--ca internal', ['--ca', 'internal']],
    ['--ca=serving', ['--ca=serving']],
    ["the root's own key, though the bundle has it", ['--ca', 'node', '--root-key', 'own.key']],
    ['another bundle', ['--ca', 'node', '--pki', 'other.json']],
  ];
  for (const [name, flags] of good) {
    it(`CLI-059 takes ${name}`, async () => {
      writeFileSync(bench.path('other.json'), online);
      const own = bench.bundle().rootCa.privateKey;
      writeFileSync(bench.path('own.key'), own === undefined ? '' : pemOf(own), { mode: 0o600 });
      const run = await bench.run('pki', 'renew-ca', ...flags.map((flag) => (/\.(key|json)$/.test(flag) ? bench.path(flag) : flag)));
      assert.equal(run.exitCode, 0, run.err);
      assert.equal(file() === online, flags.includes('--pki'));
    });
  }

  const bad: readonly [string, string[], number, RegExp][] = [
    ['no --ca', [], 2, /required option '--ca <ca>' not specified/],
    ['the root', ['--ca', 'root'], 2, /argument 'root' is invalid\. Allowed choices are node, serving, internal/],
    ['two words', ['--ca', 'node', 'serving'], 2, /too many arguments/],
    ['an unknown flag', ['--ca', 'node', '--days', '9'], 2, /unknown option '--days'/],
    [
      'a root key that is not there',
      ['--ca', 'node', '--root-key', 'no.key'],
      5,
      /--root-key .*no\.key cannot be read \(ENOENT\)\nhint: is the medium/,
    ],
    ["another root's key", ['--ca', 'node', '--root-key', 'root-ca.key'], 2, /not the one of this key bundle's root CA/],
    ['a file that is no key', ['--ca', 'node', '--root-key', 'pki.json'], 2, /pki\.json is not a P-256 private key in PEM/],
    ['an encrypted key', ['--ca', 'node', '--root-key', 'encrypted.key'], 2, /encrypted\.key is encrypted/],
    ['a bundle that is not there', ['--ca', 'node', '--pki', 'no.json'], 5, /there is no key bundle at/],
  ];
  for (const [name, flags, exitCode, message] of bad) {
    it(`CLI-059 CLI-052 refuses ${name}`, async () => {
      writeFileSync(bench.path('encrypted.key'), '-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n');
      const run = await bench.run('pki', 'renew-ca', ...flags.map((flag) => (/\.(key|json)$/.test(flag) ? bench.path(flag) : flag)));
      assert.match(run.err, message);
      assert.deepEqual([run.exitCode, run.out, file()], [exitCode, '', online]);
      assert.ok(!run.err.includes('MIG'), 'no key material in a message');
    });
  }

  it('CLI-049 a renewal that gains nothing changes nothing', async () => {
    bench.at(now + hour);
    await bench.run('pki', 'renew-ca', '--ca', 'node');
    const before = file();
    const run = await bench.run('pki', 'renew-ca', '--ca', 'node');
    assert.deepEqual(
      [run.exitCode, run.err],
      [4, 'error: a renewal gains nothing: the certificate ends at 2028-01-15T13:00:00Z already\nhint: renew it later\n'],
    );
    assert.equal(file(), before);
  });
});
