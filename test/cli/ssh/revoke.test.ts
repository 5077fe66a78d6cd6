/** `better-compute ssh revoke|list` against a running operator API: exact output, and flags. */
import assert from 'node:assert/strict';
import { runCli } from '../../../cli/program.ts';
import { showInstant } from '../../../domain/time.ts';
import { createDeployment, type FakeDeployment, now, type RunningApi, startApi } from '../../api/support.ts';
import { createTestIo, envFor } from '../support.ts';

describe('better-compute ssh revoke|list', () => {
  let deployment: FakeDeployment;
  let api: RunningApi;
  beforeEach(async () => {
    deployment = createDeployment();
    const issued = {
      account: 'root',
      keyId: 'ada: boot loop',
      publicKey: 'SHA256:x',
      issuedTo: 'ada',
      issuedAt: now,
      validBefore: now + 900_000,
    };
    deployment.sshCertificates.push(
      { serial: '4611686018427387904', nodeId: 'node-17', principal: 'root@node-17', ...issued, revokedAt: null },
      { serial: '4711', nodeId: 'node-18', principal: 'root@node-18', ...issued, revokedAt: now + 1_000 },
    );
    api = await startApi(deployment);
  });
  afterEach(() => api.close());
  const run = async (...argv: string[]) => {
    const io = createTestIo({ env: envFor(api.url) });
    return { exitCode: await runCli(['ssh', ...argv], io), out: io.stdout(), err: io.stderr() };
  };

  it('SSH-006 takes a certificate back with who and why', async () => {
    assert.deepEqual(await run('revoke', '4711', '--reason', 'laptop lost'), {
      exitCode: 0,
      out: 'taking 4711 back: workflow ssh/4711/revoke\n',
      err: 'sessions that are open stay open: end them on the machine\n',
    });
    assert.deepEqual(deployment.sshRevokesAsked, [{ serial: '4711', actor: 'ann', reason: 'laptop lost' }]);
    const { out } = await run('revoke', '4711', '--reason', 'again', '--actor', 'bob', '--json');
    assert.deepEqual(JSON.parse(out), { workflowId: 'ssh/4711/revoke', runId: 'run-3' });
  });

  it('SSH-005 lists what was issued, with serials to the last digit', async () => {
    const until = showInstant(now + 900_000);
    const { out } = await run('list');
    assert.deepEqual(
      out.split('\n').map((line) => line.split(/ {2,}/).map((cell) => cell.trim())),
      [
        ['SERIAL', 'PRINCIPAL', 'KEY ID', 'UNTIL', 'REVOKED'],
        ['4611686018427387904', 'root@node-17', 'ada: boot loop', until, '-'],
        ['4711', 'root@node-18', 'ada: boot loop', until, showInstant(now + 1_000)],
        [''],
      ],
    );
    assert.deepEqual(JSON.parse((await run('list', '--node', 'node-18', '--json')).out), { certificates: [deployment.sshCertificates[1]] });
    deployment.sshCertificates.length = 0;
    assert.deepEqual(await run('list'), { exitCode: 0, out: '', err: 'no certificate was issued\n' });
  });

  const bad: ReadonlyArray<readonly [name: string, argv: readonly string[], exitCode: number, err: RegExp]> = [
    ['no serial', ['revoke', '--reason', 'x'], 2, /missing required argument 'serial'/],
    ['a word', ['revoke', 'abc', '--reason', 'x'], 2, /It must be a whole number in digits/],
    ['zero', ['revoke', '0', '--reason', 'x'], 2, /It must be a whole number in digits/],
    ['no reason', ['revoke', '4711'], 2, /required option '--reason <text>' not specified/],
    ['a serial nobody gave out', ['revoke', '12', '--reason', 'x'], 5, /^error: no certificate 12 was issued here\n/],
    ['no number of rows', ['list', '--limit', 'many'], 2, /argument 'many' is invalid/],
  ];
  for (const [name, argv, exitCode, err] of bad)
    it(`refuses ${name}`, async () => {
      const refused = await run(...argv);
      assert.match(refused.err, err);
      assert.deepEqual([refused.exitCode, refused.out], [exitCode, '']);
    });
});
