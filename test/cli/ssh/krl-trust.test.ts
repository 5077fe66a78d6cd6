/** `better-compute ssh krl`: under whose authority, and of several writers. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { runCli } from '../../../cli/program.ts';
import { parseKrl } from '../../../pki/ssh/index.ts';
import { createPair } from '../../pki/ssh/support.ts';
import { trustDomain } from '../../pki/support.ts';
import { type Bench, createBench } from '../pki/harness.ts';
import { createTestIo } from '../support.ts';

describe('better-compute ssh krl, whom it speaks for', () => {
  let bench: Bench;
  before(async () => {
    bench = createBench();
    assert.equal((await bench.run('pki', 'init', '--trust-domain', trustDomain)).exitCode, 0);
  });
  after(() => bench.close());
  const run = async (...argv: string[]): Promise<{ exitCode: number; err: string }> => {
    const io = createTestIo({ env: bench.env });
    return { exitCode: await runCli(argv, io), err: io.stderr() };
  };

  it('of two that revoke at once, none takes back what the other revoked', async () => {
    const list = bench.path('both.krl');
    const serials = [11n, 22n, 33n, 44n];
    const done = await Promise.all(serials.map((serial) => run('ssh', 'krl', list, '--serial', String(serial))));
    assert.ok(done.every(({ exitCode }) => exitCode === 0));
    const krl = parseKrl(readFileSync(list));
    assert.equal(krl.version, 4n);
    assert.equal(krl.certificates.length, 1, 'one section, however often the command ran');
    for (const serial of serials)
      assert.ok(
        krl.certificates.some((of) => of.serials.some((revoked) => revoked.has(serial))),
        String(serial),
      );
  });

  it('AUD-007 KEY-018 revokes under the authority that the seal vouches for, or says that nothing does', async () => {
    const pki = bench.path('edited.json');
    const document = JSON.parse(readFileSync(bench.path('pki.json'), 'utf8')) as { keys: { sshCa: { publicKey: string } } };
    document.keys.sshCa.publicKey = createPair('ed25519', 'not-ours').line;
    writeFileSync(pki, JSON.stringify(document));
    const list = bench.path('edited.krl');
    const refused = await run('ssh', 'krl', list, '--serial', '5', '--pki', pki);
    assert.equal(refused.exitCode, 3);
    assert.match(refused.err, /^error: the public half of the key bundle was changed without the secret/);
    assert.equal(existsSync(list), false);
    const { BETTER_COMPUTE_SECRET: _secret, ...env } = bench.env;
    const io = createTestIo({ env });
    assert.equal(await runCli(['ssh', 'krl', list, '--serial', '5', '--pki', pki], io), 0);
    assert.match(io.stderr(), /^warning: nothing vouches for these pins/);
  });
});
