import assert from 'node:assert/strict';
import { copyFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { auditVerifyRun, newAuditVerify } from '../../cli/commands/audit/verify.ts';
import { toExit } from '../../cli/exit.ts';
import { hour } from '../../domain/time.ts';
import { encodeBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { recordAudit } from '../../services/audit.ts';
import { auditModule } from '../../services/audit-module.ts';
import { now as apiNow } from '../api/support.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { edited, secret, sharedBundle, trustDomain } from '../pki/support.ts';
import { createTestIo, createTestPorts, parseWith, type TestIo } from './support.ts';

const otherPin = `sha256/${Buffer.alloc(32, 7).toString('base64')}`;

describe('better-compute audit verify', () => {
  const used = useDatabase();
  let home: string;
  let bundle: PkiBundle;
  let pin: string;
  before(async () => {
    bundle = await sharedBundle();
    pin = spkiPin((bundle.auditSigning as NonNullable<PkiBundle['auditSigning']>).spki);
    home = scratchFolder();
    writeFileSync(join(home, 'pki.json'), encodeBundle(bundle, { secret }));
    for (const at of [1, 2, 3]) {
      await recordAudit(
        used.db,
        { key: `e/${at}`, actor: 'ann', action: 'a.b', subject: 's', details: {}, tenant: 'acme' },
        apiNow - hour + at,
      );
    }
    await auditModule({ signer: bundle.auditSigning }).checkpoint({ db: used.db, trustDomain, now: apiNow - hour / 2 });
    await recordAudit(used.db, { key: 'e/4', actor: 'ann', action: 'a.b', subject: 's', details: {}, tenant: 'acme' }, apiNow);
  });
  after(removeScratchFolders);

  interface Ran {
    readonly exitCode: number;
    readonly io: TestIo;
    readonly lines: readonly string[];
  }
  const run = async (argv: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> => {
    const url = used.url;
    const io = createTestIo({
      env: { BETTER_COMPUTE_HOME: home, BETTER_COMPUTE_SECRET: secret, BETTER_COMPUTE_DATABASE_URL: url, ...env },
    });
    const options = await parseWith(
      newAuditVerify,
      argv.filter((word) => word !== '--json'),
    );
    try {
      await auditVerifyRun({ ...options, json: argv.includes('--json') }, createTestPorts(io));
      return { exitCode: 0, io, lines: [] };
    } catch (error) {
      const { exitCode, lines } = toExit(error);
      return { exitCode, io, lines };
    }
  };

  it('AUD-004 an intact trail: exit 0, what it holds, and the line to keep', async () => {
    const { exitCode, io } = await run(['--tenant', 'acme']);
    assert.equal(exitCode, 0);
    const kept = /^lastCheckpoint: (1:[0-9a-f]{64}) \(2030-01-01T11:30:00Z\)$/m.exec(io.stdout())?.[1] ?? '';
    assert.equal(
      io.stdout(),
      `tenant: acme\ncheckpoints: 1\nlastCheckpoint: ${kept} (2030-01-01T11:30:00Z)\nsealed: 3 event(s)\nunsealed: 1 event(s)\nverdict: VALID\n`,
    );
    assert.equal(io.stderr(), '');
    assert.equal((await run(['--tenant', 'acme', '--kept', kept])).exitCode, 0);
    const cut = await run(['--tenant', 'acme', '--kept', `2${kept.slice(1)}`]);
    assert.deepEqual([cut.exitCode, /checkpoint 2 is not the one that was kept/.test(cut.lines.join())], [9, true]);
    const verdict = (await run(['--tenant', 'acme', '--json'])).io.json() as { valid: boolean; sealed: number; problems: unknown[] };
    assert.deepEqual([verdict.valid, verdict.sealed, verdict.problems], [true, 3, []]);
  });

  it('AUD-005 the pin comes from --pin, then BETTER_COMPUTE_AUDIT_PIN, then the bundle', async () => {
    const nowhere = { BETTER_COMPUTE_HOME: join(home, 'nowhere') };
    assert.equal((await run(['--tenant', 'acme', '--pin', pin], { ...nowhere, BETTER_COMPUTE_AUDIT_PIN: otherPin })).exitCode, 0);
    assert.equal((await run(['--tenant', 'acme'], { ...nowhere, BETTER_COMPUTE_AUDIT_PIN: pin })).exitCode, 0);
    assert.equal(
      (await run(['--tenant', 'acme'], { BETTER_COMPUTE_AUDIT_PIN: otherPin })).exitCode,
      9,
      'the environment before the bundle',
    );
    assert.equal((await run(['--tenant', 'acme', '--pki', join(home, 'pki.json')], { BETTER_COMPUTE_AUDIT_PIN: otherPin })).exitCode, 0);
    assert.equal((await run(['--tenant', 'acme'], nowhere)).exitCode, 5);
  });

  it('AUD-006 any problem is AUDIT_TAMPERED: another pin, an event that changed, an event that is gone', async () => {
    const wrong = await run(['--tenant', 'acme', '--pin', otherPin]);
    assert.deepEqual([wrong.exitCode, wrong.lines[1]], [9, 'hint: the record does not match its signature: compare with a backup']);
    assert.match(
      wrong.lines[0] ?? '',
      /^error: the audit trail of acme does not hold: checkpoint 1 is signed by sha256\/.*, not by the pinned audit key$/,
    );
    assert.match(wrong.io.stdout(), /PROBLEM pin: checkpoint 1 .*\nverdict: NOT VALID, 1 problem\(s\)\n$/);
    await used.db.query({ text: 'create table kept as select * from audit_events' });
    try {
      for (const [text, message] of [
        ["update audit_events set actor = 'mallory' where seq = 2", /event 2 does not match its hash/],
        ["update audit_events set actor = 'mallory' where seq = 4", /event 4 does not match its hash/],
        ['delete from audit_events where seq = 4', /event 4 is missing at the end of the chain/],
        ["delete from audit_events where tenant_id = 'acme'", /event 4 is missing/],
      ] as const) {
        await used.db.query({ text });
        const tampered = await run(['--tenant', 'acme']);
        assert.equal(tampered.exitCode, 9, text);
        assert.match(tampered.lines[0] ?? '', message);
        await used.db.query({ text: 'delete from audit_events' });
        await used.db.query({ text: 'insert into audit_events select * from kept' });
      }
    } finally {
      await used.db.query({ text: 'drop table kept' });
    }
    assert.equal((await run(['--tenant', 'acme'])).exitCode, 0);
  });

  it('AUD-007 CLI-017 the bundle is read as pki show reads it: checked with the secret, with a warning without', async () => {
    const without = await run(['--tenant', 'acme'], { BETTER_COMPUTE_SECRET: '' });
    assert.equal(without.exitCode, 0);
    assert.match(without.io.stderr(), /^warning: nothing vouches for these pins: whoever can write .*pki\.json chooses them/);
    const other = join(home, 'edited.json');
    writeFileSync(
      other,
      edited(encodeBundle(bundle, { secret }), (document) => document.trustVersion++),
    );
    const changed = await run(['--tenant', 'acme', '--pki', other]);
    assert.deepEqual([changed.exitCode, changed.io.stdout()], [3, '']);
    assert.match(changed.lines[0] ?? '', /was changed without the secret: restore it from a backup$/);
    const { auditSigning: _none, ...keyless } = bundle;
    writeFileSync(other, encodeBundle(keyless, { secret }));
    const refused = await run(['--pki', other]);
    assert.deepEqual([refused.exitCode, refused.lines[0]], [4, 'error: the key bundle has no audit key']);
    copyFileSync(join(home, 'pki.json'), other);
    rmSync(other);
  });

  it('AUD-003 says when events wait too long for their checkpoint', async () => {
    await recordAudit(used.db, { key: 'old', actor: 'ann', action: 'a.b', subject: 's', details: {}, tenant: 'slow' }, apiNow - 3 * hour);
    const { exitCode, io } = await run(['--tenant', 'slow']);
    assert.equal(exitCode, 0);
    assert.equal(
      io.stderr(),
      'warning: 1 event(s) wait for a checkpoint, the oldest for 3 h 0 min: does the schedule run? If it does, checkpoints were taken away: compare with one that was kept, --kept\n',
    );
  });

  const good: readonly [string[], object][] = [
    [[], { tenant: 'deployment', pin: null, kept: null, pki: null }],
    [['--tenant', 'acme', '--pin', otherPin], { tenant: 'acme', pin: otherPin }],
    [['--kept', `12:${'a'.repeat(64)}`], { kept: { number: 12, sha256: 'a'.repeat(64) } }],
  ];
  for (const [argv, expected] of good) {
    it(`AUD-004 takes ${argv.join(' ') || 'nothing'}`, async () => {
      const options = await parseWith(newAuditVerify, argv);
      assert.deepEqual({ ...options, ...expected }, { ...options });
    });
  }
  for (const [argv, message] of [
    [['--kept', '1'], /It must be a number, ":" and 64 hex digits/],
    [['--kept', `0:${'a'.repeat(64)}`], /It must be a number/],
    [['--tenant'], /argument missing/],
    [['acme'], /too many arguments/],
    [['--since', '1'], /unknown option '--since'/],
  ] as const) {
    it(`AUD-004 refuses ${argv.join(' ').slice(0, 20)}`, () => assert.rejects(parseWith(newAuditVerify, argv), message));
  }
  it('AUD-004 refuses a pin that is none, a tenant without a trail, and a place without a database', async () => {
    const nobody = await run(['--tenant', 'nobody']);
    assert.deepEqual([nobody.exitCode, nobody.lines[0]], [5, 'error: tenant nobody has no audit trail']);
    const bad = await run(['--pin', 'sha256/short']);
    assert.deepEqual([bad.exitCode, bad.lines[0]], [2, 'error: "sha256/short" is no pin: sha256/ and 44 characters of base64']);
    const none = await run([], { BETTER_COMPUTE_DATABASE_URL: '' });
    assert.deepEqual([none.exitCode, /BETTER_COMPUTE_DATABASE_URL is not set/.test(none.lines[0] ?? '')], [2, true]);
  });
});
