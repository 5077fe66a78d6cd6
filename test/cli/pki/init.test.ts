import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import fsPromises from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { foundingKeyNames, openBundle } from '../../../pki/bundle/index.ts';
import { spkiOf } from '../../../pki/x509/index.ts';
import { trustDomain } from '../../pki/support.ts';
import { type Bench, createBench, flagsOf } from './harness.ts';

const init = ['pki', 'init', '--trust-domain', trustDomain];

describe('better-compute pki init', () => {
  let bench: Bench;
  beforeEach(() => {
    bench = createBench();
  });
  afterEach(() => bench.close());

  it('CLI-001 CLI-004 CLI-005 CLI-007 creates one sealed file of mode 0600 and prints its pins as show does', async () => {
    const run = await bench.run(...init);
    assert.deepEqual([run.exitCode, run.err], [0, `wrote ${bench.path('pki.json')}\n`]);
    assert.deepEqual(readdirSync(bench.folder), ['pki.json']);
    assert.equal(statSync(bench.path('pki.json')).mode & 0o777, 0o600);
    assert.equal(bench.bundle().authenticated, true);
    assert.equal((await bench.run('pki', 'show')).out, run.out);
    const json = await bench.run('pki', 'show', '--json');
    assert.equal((JSON.parse(json.out) as { trustDomain: string }).trustDomain, trustDomain);
  });

  it('CLI-006 never overwrites: the second run is INVALID_STATE and the bytes stay', async () => {
    await bench.run(...init);
    const before = readFileSync(bench.path('pki.json'));
    const run = await bench.run(...init);
    assert.deepEqual(run, {
      exitCode: 4,
      out: '',
      err: `error: ${bench.path('pki.json')} already exists: it is never overwritten\nhint: look at the current state first; the message names the step that comes next\n`,
    });
    assert.deepEqual(readFileSync(bench.path('pki.json')), before);
  });

  it('KEY-002 KEY-010 CLI-003 one file holds every key of the table, each with its private half, and a second run adds none', async () => {
    await bench.run(...init);
    const bundle = bench.bundle();
    for (const name of foundingKeyNames) assert.ok(bundle[name]?.privateKey !== undefined, name);
    assert.equal(bundle.commandSigning?.privateKey?.asymmetricKeyType, 'ec');
    const before = readFileSync(bench.path('pki.json'), 'utf8');
    assert.equal((await bench.run(...init)).exitCode, 4);
    assert.equal(readFileSync(bench.path('pki.json'), 'utf8'), before);
    assert.deepEqual(readdirSync(bench.folder), ['pki.json']);
  });

  it('CLI-008 without a secret it is MISSING_ENV, and there is no file', async () => {
    delete bench.env['BETTER_COMPUTE_SECRET'];
    assert.deepEqual(await bench.run(...init), {
      exitCode: 2,
      out: '',
      err:
        'error: BETTER_COMPUTE_SECRET is not set: sealing the key bundle takes at least 32 characters\n' +
        'hint: set it, for example: export BETTER_COMPUTE_SECRET=$(openssl rand -base64 48)\n',
    });
    bench.env['BETTER_COMPUTE_SECRET'] = 'x'.repeat(31);
    assert.match((await bench.run(...init)).err, /^error: BETTER_COMPUTE_SECRET has 31 characters/);
    assert.deepEqual(readdirSync(bench.folder), []);
  });

  it('CLI-009 --plaintext writes PEM keys, mode 0600', async () => {
    delete bench.env['BETTER_COMPUTE_SECRET'];
    const run = await bench.run(...init, '--plaintext');
    assert.equal(run.exitCode, 0, run.err);
    assert.match(run.out, /^authenticated: false\nseal: plaintext$/m);
    const text = readFileSync(bench.path('pki.json'), 'utf8');
    assert.match(text, /BEGIN PRIVATE KEY/);
    assert.equal(statSync(bench.path('pki.json')).mode & 0o777, 0o600);
    assert.equal(openBundle(text).seal, 'plaintext');
  });

  it('CLI-010 KEY-045 --offline-root writes the root key apart, mode 0600, and not into the bundle', async () => {
    const run = await bench.run(...init, '--offline-root', bench.path('usb/root-ca.key'));
    assert.equal(run.err, `wrote ${bench.path('pki.json')} and the root key ${bench.path('usb/root-ca.key')}: keep it off the servers\n`);
    assert.equal(statSync(bench.path('usb/root-ca.key')).mode & 0o777, 0o600);
    const { rootCa } = bench.bundle();
    assert.equal(rootCa.privateKey, undefined);
    assert.deepEqual(spkiOf(createPrivateKey(readFileSync(bench.path('usb/root-ca.key')))), rootCa.spki);
  });

  it('CLI-010 KEY-045 a bundle that stands although its folder failed keeps its root key', async () => {
    const files = fsPromises as { open: typeof fsPromises.open };
    const { open } = files;
    files.open = async (path, ...rest) => {
      if (path === bench.folder && existsSync(bench.path('pki.json')))
        throw Object.assign(new Error('a fault of the disk'), { code: 'EIO' });
      return open(path, ...rest);
    };
    syncBuiltinESMExports();
    const run = await bench.run(...init, '--offline-root', bench.path('usb/root-ca.key'));
    files.open = open;
    syncBuiltinESMExports();
    assert.equal(run.exitCode, 3);
    assert.match(run.err, /pki\.json cannot be written \(EIO\)/);
    const root = createPrivateKey(readFileSync(bench.path('usb/root-ca.key')));
    assert.ok(Buffer.from(spkiOf(root)).equals(bench.bundle().rootCa.spki));
  });

  it('A-PKI-05 an offline root file that exists is not overwritten, and no bundle is left behind', async () => {
    writeFileSync(bench.path('root.key'), 'precious');
    const run = await bench.run(...init, '--offline-root', bench.path('root.key'));
    assert.deepEqual([run.exitCode, /root\.key already exists/.test(run.err)], [4, true]);
    assert.deepEqual(readdirSync(bench.folder), ['root.key']);
    assert.equal(readFileSync(bench.path('root.key'), 'utf8'), 'precious');
  });

  it('CLI-012 has these flags', async () => {
    const { out } = await bench.run('pki', 'init', '--help');
    assert.deepEqual(flagsOf(out), [
      '--trust-domain',
      '--pki',
      '--plaintext',
      '--offline-root',
      '--root-ca-signer',
      '--command-root-signer',
      '--audit-signer',
      '--create-signer-keys',
    ]);
    assert.match(out, /Examples:/);
  });

  it('--pki and BETTER_COMPUTE_PKI name the file, the flag first', async () => {
    bench.env['BETTER_COMPUTE_PKI'] = bench.path('env/pki.json');
    assert.equal((await bench.run(...init)).exitCode, 0);
    assert.equal((await bench.run(...init, '--pki', bench.path('flag.json'))).exitCode, 0);
    assert.deepEqual(readdirSync(bench.folder).sort(), ['env', 'flag.json']);
  });

  const bad: readonly [string, string[], number, RegExp][] = [
    ['no trust domain', ['pki', 'init'], 2, /required option '--trust-domain <name>' not specified/],
    ['an upper-case trust domain', ['pki', 'init', '--trust-domain', 'Compute'], 2, /"Compute" is not a trust domain: 1 to 255 of a-z/],
    ['a long trust domain', ['pki', 'init', '--trust-domain', 'a'.repeat(256)], 2, /is not a trust domain/],
    ['A-PKI-07 --plaintext beside the secret', [...init, '--plaintext'], 2, /--plaintext and BETTER_COMPUTE_SECRET exclude each other/],
    ['an unknown flag', [...init, '--overwrite'], 2, /unknown option '--overwrite'/],
    ['a stray argument', [...init, 'now'], 2, /too many arguments/],
    [
      'the root key in the place of the bundle',
      [...init, '--pki', '/nowhere/x', '--offline-root', '/nowhere/x'],
      2,
      /are both \/nowhere\/x/,
    ],
    ['a folder that cannot be made', [...init, '--pki', '/dev/null/pki.json'], 3, /cannot be written \(E[A-Z]+\)/],
  ];
  for (const [name, argv, exitCode, message] of bad) {
    it(`CLI-012 refuses ${name}`, async () => {
      const run = await bench.run(...argv);
      assert.match(run.err, message);
      assert.deepEqual([run.exitCode, run.out, readdirSync(bench.folder)], [exitCode, '', []]);
    });
  }

  const good: readonly [string, string[]][] = [
    ['the longest trust domain', ['pki', 'init', '--trust-domain', 'a'.repeat(255)]],
    ['--json after the command', [...init, '--json']],
    ['--json before the command', ['--json', ...init]],
  ];
  for (const [name, argv] of good) {
    it(`CLI-012 takes ${name}`, async () => {
      const run = await bench.run(...argv);
      assert.equal(run.exitCode, 0, run.err);
      if (argv.includes('--json')) assert.equal((JSON.parse(run.out) as { authenticated: boolean }).authenticated, true);
    });
  }
});
