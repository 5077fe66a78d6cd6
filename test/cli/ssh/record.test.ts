/** `better-compute ssh sign` writes down what it issues, in a real database. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { runCli } from '../../../cli/program.ts';
import { parseSshCertificateLine, parseSshKeyLine, sshFingerprint } from '../../../pki/ssh/index.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { createPair } from '../../pki/ssh/support.ts';
import { trustDomain } from '../../pki/support.ts';
import { addNode } from '../../services/support.ts';
import { type Bench, createBench } from '../pki/harness.ts';
import { createTestIo } from '../support.ts';

describe('better-compute ssh sign, what is written down', () => {
  const used = useDatabase();
  let bench: Bench;
  const pair = createPair('ed25519', 'ada@laptop');
  const clock = createTestIo().now();
  before(async () => {
    bench = createBench();
    assert.equal((await bench.run('pki', 'init', '--trust-domain', trustDomain)).exitCode, 0);
    writeFileSync(bench.path('ada.pub'), `${pair.line}\n`);
    bench.env['BETTER_COMPUTE_DATABASE_URL'] = used.url;
    await addNode(used.db, 'node-17');
  });
  after(() => bench.close());
  const sign = async (...flags: string[]): Promise<{ exitCode: number; out: string; err: string }> => {
    const io = createTestIo({ env: bench.env });
    const exitCode = await runCli(['ssh', 'sign', '--key', bench.path('ada.pub'), ...flags], io);
    return { exitCode, out: io.stdout(), err: io.stderr() };
  };
  const user = ['--account', 'root', '--node', 'node-17'];

  it('SSH-005 writes every user certificate down before it leaves; without a database or for an unknown node none is issued', async () => {
    const { out } = await sign(...user, '--actor', 'ada', '--reason', 'boot loop', '--for', '15m');
    const { serial } = parseSshCertificateLine(out);
    const rows = await used.db.query({
      text: `select node_id, principal, key_id, public_key, issued_to, valid_before, revoked_at from ssh_certificates where serial = ${serial}`,
    });
    assert.deepEqual(rows, [
      {
        node_id: 'node-17',
        principal: 'root@node-17',
        key_id: 'ada: boot loop',
        public_key: sshFingerprint(parseSshKeyLine(pair.line).blob),
        issued_to: 'ada',
        valid_before: clock + 900_000,
        revoked_at: null,
      },
    ]);
    const count = async () => (await used.db.query<{ n: number }>({ text: 'select count(*) as n from ssh_certificates' }))[0]?.n;
    const before = await count();
    await sign('--host', 'node-17');
    assert.equal(await count(), before, 'host certificates open nothing');
    const unknown = await sign('--account', 'root', '--node', 'node-18');
    assert.deepEqual([unknown.exitCode, unknown.out], [5, '']);
    assert.match(unknown.err, /^error: no node is called node-18: no certificate is issued for one\nhint: better-compute nodes list\n$/);
    const { BETTER_COMPUTE_DATABASE_URL: _, ...env } = bench.env;
    const io = createTestIo({ env });
    const exitCode = await runCli(['ssh', 'sign', '--key', bench.path('ada.pub'), ...user], io);
    assert.equal(io.stdout(), '');
    assert.match(io.stderr(), /^error: a user certificate is written down before it is issued: BETTER_COMPUTE_DATABASE_URL is not set/);
    assert.ok(exitCode > 0);
  });
});
