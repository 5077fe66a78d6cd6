import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createBundle, createBundleWithOfflineRoot, encodeBundle, openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { now, secret, trustDomain } from '../../pki/support.ts';
import { type Bench, createBench, flagsOf } from './harness.ts';

const withoutSandbox = ({ sandboxSshCa: _none, ...bundle }: PkiBundle): PkiBundle => bundle;
const next = 'next: roll the bundle out to every api, and give vps this key: sandboxExec.caPublicKey\n';

describe('better-compute pki add-sandbox-ca', () => {
  let bench: Bench;
  let old: PkiBundle;
  before(async () => {
    old = withoutSandbox(await createBundle({ trustDomain, now }));
  });
  beforeEach(() => {
    bench = createBench();
    writeFileSync(bench.path('pki.json'), encodeBundle(old, { secret }));
  });
  afterEach(() => bench.close());
  const file = (): string => readFileSync(bench.path('pki.json'), 'utf8');

  it('SBX-017 CLI-029 CLI-030 CLI-032 CLI-035 creates it, seals, prints its public key and what comes next', async () => {
    assert.equal(bench.bundle().sandboxSshCa, undefined);
    const run = await bench.run('pki', 'add-sandbox-ca');
    const after = bench.bundle();
    const line = after.sandboxSshCa?.publicKey ?? '';
    assert.match(line, /^ssh-ed25519 \S+ compute\.example\.com sandbox ssh ca$/);
    assert.deepEqual(run, { exitCode: 0, out: `sandboxSshCaPublicKey: ${line}\n`, err: next });
    assert.deepEqual([after.seal, after.authenticated, after.generation], ['current', true, old.generation + 1]);
    assert.ok((await bench.run('pki', 'show')).out.includes(`sandboxSshCaPublicKey: ${line}\n`));
  });

  it('CLI-032 in JSON', async () => {
    const run = await bench.run('pki', 'add-sandbox-ca', '--json');
    assert.deepEqual(JSON.parse(run.out), { sandboxSshCaPublicKey: bench.bundle().sandboxSshCa?.publicKey });
  });

  it('CLI-028 CLI-033 pki init makes one, so there it is INVALID_STATE; twice as well; the file stays', async () => {
    assert.equal((await bench.run('pki', 'init', '--trust-domain', trustDomain, '--pki', bench.path('new.json'))).exitCode, 0);
    const refused = {
      exitCode: 4,
      out: '',
      err:
        'error: the key bundle already has a sandbox SSH CA\n' +
        'hint: better-compute pki show prints its public key: sandboxSshCaPublicKey\n',
    };
    assert.deepEqual(await bench.run('pki', 'add-sandbox-ca', '--pki', bench.path('new.json')), refused);
    await bench.run('pki', 'add-sandbox-ca');
    const before = file();
    assert.deepEqual(await bench.run('pki', 'add-sandbox-ca'), refused);
    assert.equal(file(), before);
  });

  it('CLI-031 KEY-045 an offline root stays out', async () => {
    const { bundle } = await createBundleWithOfflineRoot({ trustDomain, now });
    writeFileSync(bench.path('pki.json'), encodeBundle(withoutSandbox(bundle), { secret }));
    assert.equal((await bench.run('pki', 'add-sandbox-ca')).exitCode, 0);
    assert.equal(bench.bundle().rootCa.privateKey, undefined);
  });

  it('CLI-030 without a secret a plaintext bundle stays plaintext, and a sealed one is MISSING_ENV', async () => {
    delete bench.env['BETTER_COMPUTE_SECRET'];
    assert.equal((await bench.run('pki', 'add-sandbox-ca')).exitCode, 2);
    writeFileSync(bench.path('pki.json'), encodeBundle(old, { plaintext: true }));
    assert.equal((await bench.run('pki', 'add-sandbox-ca')).exitCode, 0);
    assert.equal(openBundle(file()).seal, 'plaintext');
  });

  it('CLI-034 refuses the variable, and a bundle of the former form, naming pki reseal', async () => {
    copyFileSync(join(import.meta.dirname, '../../golden/bundles/former.json'), bench.path('pki.json'));
    const before = file();
    assert.match((await bench.run('pki', 'add-sandbox-ca')).err, /nothing vouches.*\nhint: .*better-compute pki reseal\n$/);
    bench.env['BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED'] = '1';
    const run = await bench.run('pki', 'add-sandbox-ca');
    assert.deepEqual([run.exitCode, run.out, file()], [4, '', before]);
    assert.match(run.err, /hint: unset .*; a bundle that nothing vouches for is sealed by: better-compute pki reseal\n$/);
  });

  it('CLI-036 has exactly one flag', async () => {
    const { out } = await bench.run('pki', 'add-sandbox-ca', '--help');
    assert.deepEqual(flagsOf(out), ['--pki']);
    assert.match(out, /Examples:/);
  });

  for (const [name, flags] of [
    ['nothing', []],
    ['--pki', ['--pki', 'pki.json']],
  ] as const) {
    it(`CLI-036 takes ${name}`, async () => {
      const run = await bench.run('pki', 'add-sandbox-ca', ...flags.map((flag) => (flag === 'pki.json' ? bench.path(flag) : flag)));
      assert.equal(run.exitCode, 0, run.err);
    });
  }
  for (const [name, flags, message] of [
    ['a comment', ['--comment', 'x'], /unknown option '--comment'/],
    ['a key type', ['--type', 'rsa'], /unknown option '--type'/],
    ['an argument', ['again'], /too many arguments/],
    ['--pki without a file', ['--pki'], /option '--pki <file>' argument missing/],
  ] as const) {
    it(`CLI-036 refuses ${name}`, async () => {
      const before = file();
      const run = await bench.run('pki', 'add-sandbox-ca', ...flags);
      assert.match(run.err, message);
      assert.deepEqual([run.exitCode, run.out, file()], [2, '', before]);
    });
  }
});
