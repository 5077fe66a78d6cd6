import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { bundleDigest, openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { secret } from '../../pki/support.ts';
import { type Bench, createBench, flagsOf } from './harness.ts';

const golden = (name: string): string => join(import.meta.dirname, '../../golden', name);
const warning = (path: string, remedy: string): string =>
  `warning: nothing vouches for these pins: whoever can write ${path} chooses them (${remedy})\n`;

describe('better-compute pki show', () => {
  let bench: Bench;
  beforeEach(() => {
    bench = createBench();
  });
  afterEach(() => bench.close());
  const put = (name: string): void => copyFileSync(golden(`bundles/${name}.json`), bench.path('pki.json'));

  it('CLI-014 CLI-018 with the secret: the pins, authenticated, word for word', async () => {
    put('current');
    assert.deepEqual(await bench.run('pki', 'show'), { exitCode: 0, out: readFileSync(golden('cli/pki-show.txt'), 'utf8'), err: '' });
    assert.deepEqual(await bench.run('pki', 'show', '--json'), {
      exitCode: 0,
      out: readFileSync(golden('cli/pki-show.json'), 'utf8'),
      err: '',
    });
  });

  it('CLI-013 CLI-015 CLI-016 without the secret: the same pins, unauthenticated, and a warning', async () => {
    put('current');
    delete bench.env['BETTER_COMPUTE_SECRET'];
    const expected = readFileSync(golden('cli/pki-show.txt'), 'utf8').replace('authenticated: true', 'authenticated: false');
    assert.deepEqual(await bench.run('pki', 'show'), {
      exitCode: 0,
      out: expected,
      err: warning(bench.path('pki.json'), 'set BETTER_COMPUTE_SECRET to check them against the seal'),
    });
  });

  it('A-PKI-09 a bundle that nothing vouches for is shown with the warning, exit 0', async () => {
    for (const name of ['former', 'plaintext']) {
      put(name);
      const run = await bench.run('pki', 'show');
      assert.equal(run.exitCode, 0, name);
      assert.match(run.out, new RegExp(`^authenticated: false\nseal: ${name}$`, 'm'));
      assert.equal(run.err, warning(bench.path('pki.json'), 'compare them, then seal it: better-compute pki reseal'));
    }
  });

  it('A-PKI-09 a tampered bundle and another secret are INVALID_CONFIG, without a pin', async () => {
    put('tampered.command-root-appended');
    assert.deepEqual(await bench.run('pki', 'show'), {
      exitCode: 3,
      out: '',
      err:
        'error: the public half of the key bundle was changed without the secret: restore it from a backup\n' +
        'hint: correct the configuration, or restore the bundle from a backup\n',
    });
    put('current');
    bench.env['BETTER_COMPUTE_SECRET'] = 'x'.repeat(40);
    const run = await bench.run('pki', 'show', '--json');
    assert.equal(run.exitCode, 3);
    assert.equal((JSON.parse(run.out) as { error: { code: string } }).error.code, 'INVALID_CONFIG');
  });

  it('CLI-044 without the secret, an appended certificate shows in the digest and not in the pin', async () => {
    delete bench.env['BETTER_COMPUTE_SECRET'];
    const pinsOf = async (name: string): Promise<string[]> => {
      put(name);
      return (await bench.run('pki', 'show')).out.split('\n').filter((line) => /^(nodeCaPin|certificates\.nodeCa):/.test(line));
    };
    const [pin, digest] = await pinsOf('current');
    const [samePin, otherDigest] = await pinsOf('tampered.node-ca-certificate-appended');
    assert.equal(samePin, pin);
    assert.notEqual(otherDigest, digest);
    assert.match(otherDigest ?? '', /2 certificates/);
  });

  it('has these flags, and refuses others', async () => {
    assert.deepEqual(flagsOf((await bench.run('pki', 'show', '--help')).out), ['--pki']);
    assert.match((await bench.run('pki', 'show', '--secret', 'x')).err, /unknown option '--secret'/);
  });

  it('KEY-003 a missing bundle is NOT_FOUND with the way to make one', async () => {
    assert.deepEqual(await bench.run('pki', 'show'), {
      exitCode: 5,
      out: '',
      err:
        `error: there is no key bundle at ${bench.path('pki.json')}\n` +
        'hint: create one: better-compute pki init --trust-domain NAME, or name another with --pki\n',
    });
  });
});

describe('better-compute pki reseal', () => {
  let bench: Bench;
  beforeEach(() => {
    bench = createBench();
  });
  afterEach(() => bench.close());
  const put = (name: string): void => copyFileSync(golden(`bundles/${name}.json`), bench.path('pki.json'));
  const file = (): string => readFileSync(bench.path('pki.json'), 'utf8');
  const keysOf = ({ generation: _g, seal: _s, authenticated: _a, ...keys }: PkiBundle): string =>
    JSON.stringify(keys, (_key, value: unknown) => (value instanceof Map ? [...(value as Map<string, unknown>)] : value));

  it('CLI-037 CLI-039 CLI-040 CLI-046 an authenticated bundle is simply resealed; no key changes', async () => {
    put('current');
    const before = openBundle(file(), { secret });
    const run = await bench.run('pki', 'reseal');
    assert.deepEqual([run.exitCode, run.err], [0, `sealed ${bench.path('pki.json')}\n`]);
    assert.match(run.out, /^authenticated: true\nseal: current$/m);
    const after = bench.bundle();
    assert.equal(after.generation, before.generation + 1);
    assert.equal(keysOf(after), keysOf(before));
    assert.equal(bundleDigest({ ...after, generation: before.generation }), bundleDigest(before));
    assert.equal(statSync(bench.path('pki.json')).mode & 0o777, 0o600);
  });

  for (const name of ['former', 'plaintext'] as const) {
    it(`CLI-041 CLI-042 CLI-043 a ${name} bundle is not sealed at first: the pins, INVALID_STATE, the file unchanged`, async () => {
      put(name);
      const before = file();
      const run = await bench.run('pki', 'reseal');
      assert.deepEqual(run, {
        exitCode: 4,
        out: (await bench.run('pki', 'show')).out,
        err:
          'error: not sealing: nothing vouches for the pins above\n' +
          'hint: compare them, and the certificates digests, with your install scripts, join tokens and pinned CAs; then: better-compute pki reseal --accept-unauthenticated\n',
      });
      const json = JSON.parse((await bench.run('pki', 'reseal', '--json')).out) as { error: { code: string; details: { pins: unknown } } };
      assert.equal(json.error.code, 'INVALID_STATE');
      assert.deepEqual(json.error.details.pins, JSON.parse((await bench.run('pki', 'show', '--json')).out));
      assert.equal(file(), before);
    });

    it(`CLI-045 CLI-047 --accept-unauthenticated seals a ${name} bundle, with and without the variable that processes need`, async () => {
      put(name);
      if (name === 'former') bench.env['BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED'] = '1';
      const run = await bench.run('pki', 'reseal', '--accept-unauthenticated');
      assert.equal(run.exitCode, 0, run.err);
      assert.match(run.out, /^authenticated: true\nseal: current$/m);
      assert.equal(bench.bundle().authenticated, true);
      assert.equal(file().includes('PRIVATE KEY'), false);
    });
  }

  it('CLI-038 needs a secret of 32 characters', async () => {
    put('plaintext');
    for (const [value, message] of [
      ['', /BETTER_COMPUTE_SECRET is not set/],
      ['x'.repeat(31), /has 31 characters/],
    ] as const) {
      bench.env['BETTER_COMPUTE_SECRET'] = value;
      const run = await bench.run('pki', 'reseal', '--accept-unauthenticated');
      assert.equal(run.exitCode, 2);
      assert.match(run.err, message);
    }
    bench.env['BETTER_COMPUTE_SECRET'] = 'x'.repeat(32);
    assert.equal((await bench.run('pki', 'reseal', '--accept-unauthenticated')).exitCode, 0);
  });

  it('CLI-041 never seals what was tampered with, whatever is accepted', async () => {
    for (const name of ['trust-version-raised', 'ciphertext-flipped', 'seal-relabelled-former', 'seal-of-another-bundle']) {
      put(`tampered.${name}`);
      const before = file();
      const run = await bench.run('pki', 'reseal', '--accept-unauthenticated');
      assert.deepEqual([run.exitCode, /restore it from a backup/.test(run.err)], [3, true], name);
      assert.equal(file(), before);
    }
  });

  it('CLI-048 has exactly these flags', async () => {
    assert.deepEqual(flagsOf((await bench.run('pki', 'reseal', '--help')).out), ['--accept-unauthenticated', '--pki']);
    assert.match((await bench.run('pki', 'reseal', '--force')).err, /unknown option '--force'/);
  });
});
