/** `better-compute sandbox user-data`: exact output, the file, and what it refuses. */
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { runCli } from '../../../cli/program.ts';
import { hour, showInstant } from '../../../domain/time.ts';
import { parseSshCertificateLine, parseSshKeyLine, verifySshCertificate } from '../../../pki/ssh/index.ts';
import { parseCloudConfig } from '../../harness/cloud-init.ts';
import { trustDomain } from '../../pki/support.ts';
import { type Bench, createBench, flagsOf } from '../pki/harness.ts';
import { createTestIo } from '../support.ts';

describe('better-compute sandbox user-data', () => {
  let bench: Bench;
  const clock = createTestIo().now();
  before(async () => {
    bench = createBench();
    assert.equal((await bench.run('pki', 'init', '--trust-domain', trustDomain)).exitCode, 0);
  });
  after(() => bench.close());
  const run = async (...argv: string[]): Promise<{ exitCode: number; out: string; err: string }> => {
    const io = createTestIo({ env: bench.env });
    const exitCode = await runCli(['sandbox', 'user-data', ...argv], io);
    return { exitCode, out: io.stdout(), err: io.stderr() };
  };
  const certificateIn = (userData: string) => {
    const file = parseCloudConfig(userData).write_files.find(({ path }) => path.endsWith('host_key-cert.pub'));
    return parseSshCertificateLine((file?.content ?? '').trimEnd());
  };

  it('SBX-013 SBX-014 SBX-023 prints the user data, whose host certificate is of the sandbox authority', async () => {
    const { exitCode, out, err } = await run('--instance', 'i-1', '--for', '4h');
    const certificate = certificateIn(out);
    assert.equal(exitCode, 0, err);
    const until = showInstant(clock + 4 * hour);
    assert.equal(
      err,
      `user data of i-1 for sandbox@i-1; its host certificate ${certificate.serial} is good until ${until}\n` +
        'it holds the private half of the host key: hand it to the instance and keep no copy\n',
    );
    const authorities = [parseSshKeyLine(bench.bundle().sandboxSshCa?.publicKey ?? '')];
    verifySshCertificate(certificate, { authorities, kind: 'host', principal: 'i-1', now: clock });
    assert.equal(certificate.keyId, 'ann');
    assert.doesNotMatch(out, new RegExp((bench.bundle().sshCa?.publicKey ?? '').split(' ')[1]?.replaceAll('+', '\\+') ?? '', 'u'));
  });

  it('writes it to a file that only its owner reads, and tells facts as JSON', async () => {
    const path = bench.path('i-2.yaml');
    const { exitCode, out } = await run('--instance', 'i-2', '--account', 'root', '--out', path, '--json');
    const { serial, ...facts } = JSON.parse(out) as Record<string, string>;
    assert.equal(exitCode, 0);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal(String(certificateIn(readFileSync(path, 'utf8')).serial), serial);
    assert.deepEqual(facts, {
      instance: 'i-2',
      principal: 'root@i-2',
      validBefore: showInstant(clock + 30 * 24 * hour),
      file: path,
    });
  });

  it('has these flags', async () => {
    assert.equal(flagsOf((await run('--help')).out).join(' '), '--instance --account --for --actor --out --pki');
  });

  const bad: readonly (readonly [name: string, argv: readonly string[], exitCode: number, err: RegExp])[] = [
    ['no instance', [], 2, /^error: required option '--instance <id>' not specified/],
    ['a pattern for an instance', ['--instance', 'i-*'], 2, /^error: principals "i-\*" is no plain name/],
    ['two accounts', ['--instance', 'i-1', '--account', 'a,b'], 2, /^error: account "a,b" is no account name/],
    ['a time without a unit', ['--instance', 'i-1', '--for', '4'], 2, /It must be a number with a unit/],
    ['no bundle', ['--instance', 'i-1', '--pki', '/nowhere/pki.json'], 5, /^error: there is no key bundle at \/nowhere/],
  ];
  for (const [name, argv, exitCode, err] of bad)
    it(`refuses ${name}`, async () => {
      const answer = await run(...argv);
      assert.match(answer.err, err);
      assert.deepEqual([answer.out, answer.exitCode], ['', exitCode]);
    });
});
