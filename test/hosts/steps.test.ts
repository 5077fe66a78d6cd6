/**
 * The steps of an enrolment on a machine (XC-035, XC-039 to XC-041, XC-048), as the hosts worker makes them: a real sshd, the bcd that is published as one
 * file, a real database. There is no control plane behind the gateway that the pins name, or one that lies.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { encodePinsFile } from '../../pki/enroll/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { bundledDaemon } from '../../scripts/bcd.mjs';
import { type EnrolmentOrder, endEnrolment, getEnrolment, mintEnrolment, orderEnrolment } from '../../services/enrolments/index.ts';
import { createHosts, type HostsOptions } from '../../workers/hosts/hosts.ts';
import { type BroughtProgram, readProgram } from '../../workers/hosts/program.ts';
import { putScript, shellCommand } from '../../workers/hosts/shell.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { makeSshKey, sshdIsMissing } from '../harness/sshd.ts';
import { addNode, randomBytes, refused, testBundle, trustDomain } from '../services/support.ts';
import { type SshMachine, startSshMachine } from './machine.ts';

const why = sshdIsMissing ?? (process.getuid?.() === 0 ? null : 'logins of sshd need root');

describe('a file that is put on a machine', () => {
  after(removeScratchFolders);

  it('XC-039 takes its place whole or not at all: what a lost connection cut off leaves what was there', () => {
    const path = join(scratchFolder(), 'etc', 'pins.json');
    const put = (input: string): number | null => spawnSync('sh', ['-c', shellCommand(script, { becomeRoot: false })], { input }).status;
    const sha256 = createHash('sha256').update('whole').digest('hex');
    const script = putScript({ path, mode: '0644', sha256 });
    assert.notEqual(put(''), 0);
    assert.equal(existsSync(path), false);
    assert.equal(put('whole'), 0);
    assert.notEqual(put('who'), 0);
    assert.equal(readFileSync(path, 'utf8'), 'whole');
    assert.equal(statSync(path).mode & 0o777, 0o644);
    assert.deepEqual(readdirSync(join(path, '..')), ['pins.json'], 'nothing is left beside it');
  });
});

describe(`steps on a machine over SSH${why === null ? '' : `, not run: ${why}`}`, function () {
  this.timeout(120_000);
  // Before the database's own hook, which finds no connection left open then.
  after(async () => {
    nobody?.close();
    await machine?.stop();
    removeScratchFolders();
  });
  const used = useDatabase();
  let folder: string;
  let machine: SshMachine;
  let program: BroughtProgram;
  let pins: string;
  let nobody: Server | undefined;

  before(async function () {
    if (why !== null) return this.skip();
    folder = scratchFolder();
    mkdirSync(join(folder, 'credentials'), { mode: 0o700 });
    const loginKey = makeSshKey(folder, 'login');
    writeFileSync(join(folder, 'credentials', 'web'), readFileSync(loginKey), { mode: 0o600 });
    const path = join(folder, 'bcd');
    writeFileSync(path, await bundledDaemon({ executable: true }), { mode: 0o755 });
    program = await readProgram(path);
    machine = await startSshMachine({ folder, name: 'web-7', loginKey });
    // A captive portal, of a kind: it takes connections, and speaks no TLS of ours.
    nobody = createServer((socket) => socket.on('error', () => undefined).end('HTTP/1.1 200 OK\r\n\r\nhealthy'));
    await new Promise<void>((resolve) => nobody?.listen(0, '127.0.0.1', resolve));
    const { servingCa, joinSigning } = await testBundle();
    pins = encodePinsFile({
      trustDomain,
      gateway: `https://127.0.0.1:${(nobody.address() as AddressInfo).port}`,
      servingCaPin: spkiPin(servingCa.certificate.spki),
      joinKey: joinSigning.spki,
    });
  });

  const hosts = (over: Partial<HostsOptions> = {}) =>
    createHosts({
      db: used.db,
      credentials: join(folder, 'credentials'),
      program,
      layout: machine.layout,
      pins: async () => ({ text: pins, trustDomain }),
      unit: { releaseKeys: null, websocketUrl: null },
      ...over,
    });
  const order = async (over: Partial<EnrolmentOrder> & Pick<EnrolmentOrder, 'nodeId'>): Promise<string> => {
    const at = { address: '127.0.0.1', port: machine.port, hostKey: machine.hostKey, credential: 'file://web' };
    const ordered = { kind: 'enrol' as const, ...(over.kind === 'reenrol' ? {} : { siteId: 'berlin' }), ...at, ...over };
    return (await orderEnrolment(used.db, ordered, { trustDomain, actor: 'olga', reason: 'new rack', now: Date.now() })).id;
  };
  const everything = (): string[] => readdirSync(machine.layout.dataDir, { recursive: true }).map(String);

  it('XC-039 XC-040 brings bcd, its pins and its unit; the key is made there, and its private half is said to nobody', async () => {
    const id = await order({ nodeId: 'web-7' });
    assert.deepEqual(await hosts().reach(id), { system: `Linux ${process.arch === 'x64' ? 'x86_64' : 'aarch64'}`, version: '' });
    assert.equal(existsSync(machine.layout.program), false, 'a look changes nothing');
    assert.deepEqual(await hosts().install(id), { program: 'uploaded' });
    assert.deepEqual(await hosts().install(id), { program: 'present' });
    assert.deepEqual(readFileSync(machine.layout.program), Buffer.from(program.content));
    assert.equal(statSync(machine.layout.program).mode & 0o777, 0o755);
    assert.equal(readFileSync(join(machine.layout.configDir, 'pins.json'), 'utf8'), pins);
    assert.match(
      readFileSync(join(machine.layout.unitDir, 'bcd.service'), 'utf8'),
      new RegExp(`^ExecStart=${machine.layout.program} run`, 'm'),
    );
    const first = await hosts().prepare(id);
    assert.deepEqual(await hosts().prepare(id), first, 'again, it is the same key');
    assert.equal(first.generation, null);
    assert.match(readFileSync(join(machine.layout.dataDir, 'enrolment.json'), 'utf8'), /PRIVATE KEY/);
    assert.equal(/PRIVATE/.test(JSON.stringify(first)), false);
    assert.deepEqual(machine.told(), [], 'nothing was started');
  });

  it('XC-041 XC-045 XC-052 a machine that does not hear this control plane has no key minted, and tidies up', async () => {
    const id = (await used.db.query<{ id: string }>({ text: `select id from enrolments where node_id = 'web-7'` }))[0]?.id ?? '';
    await assert.rejects(hosts().mint(id), /bcd enrol check, on the machine: /);
    const { state, deadline } = await getEnrolment(used.db, id);
    assert.deepEqual([state, deadline], ['open', null]);
    await assert.rejects(hosts().start(id), refused('INVALID_STATE', /is not minted yet/, 'not-minted'));
    await assert.rejects(hosts().tidy(id), refused('INVALID_STATE', /there is nothing to tidy/, 'enrolment-not-ended'));
    await endEnrolment(used.db, { id, as: 'fail', reason: 'unheard', now: Date.now() });
    for (const step of ['reach', 'install', 'prepare', 'mint', 'start'] as const)
      await assert.rejects(hosts()[step](id), refused('INVALID_STATE', /is failed: unheard/, 'enrolment-over'));
    assert.deepEqual(await hosts().tidy(id), { detail: 'what was prepared on the machine is removed' });
    assert.deepEqual(machine.told(), [], 'what was not started is not stopped');
    assert.equal(everything().includes('enrolment.json'), false);
  });

  it('what an enrolment left armed, whose machine could not be reached behind its end, is not in the way of the next', async () => {
    const [left, next] = [await order({ nodeId: 'web-70' }), 'web-71'];
    await hosts().prepare(left);
    const { program: path, dataDir } = machine.layout;
    execFileSync(path, ['enrol', 'arm', '--id', left, '--within', '600', '--data-dir', dataDir]);
    const id = await order({ nodeId: next });
    await assert.rejects(hosts().prepare(id), /bcd enrol prepare, on the machine: .*armed/, 'while the other one is under way');
    await endEnrolment(used.db, { id: left, as: 'fail', reason: 'the machine was off', now: Date.now() });
    assert.match((await hosts().prepare(id)).csrSha256, /^[0-9a-f]{64}$/);
    await endEnrolment(used.db, { id, as: 'cancel', reason: 'over', now: Date.now() });
    await hosts().tidy(id);
  });

  it('one whose file does not read back, as a loss of power leaves it, is in nobody’s way either', async () => {
    const id = await order({ nodeId: 'web-72' });
    const path = join(machine.layout.dataDir, 'enrolment.json');
    writeFileSync(path, '{"format":"better-comp', { mode: 0o600 });
    assert.match((await hosts().prepare(id)).csrSha256, /^[0-9a-f]{64}$/);
    assert.match(readFileSync(path, 'utf8'), new RegExp(id));
    await endEnrolment(used.db, { id, as: 'cancel', reason: 'over', now: Date.now() });
    await hosts().tidy(id);
  });

  describe('a machine whose bcd answers as it likes', () => {
    /** @param prepared what it says of the key that it made */
    const lying = (prepared: object, unitDir?: string) => {
      const folder = scratchFolder();
      const path = join(folder, 'bcd');
      const said = JSON.stringify({ csrSha256: 'a'.repeat(64), nodeId: null, generation: null, ...prepared });
      const answers = `show) echo '{"enrolment":null}';; prepare) echo '${said}';; check) echo '{"healthy":true,"clockOffMs":0}';; *) echo '{"removed":false}';;`;
      writeFileSync(path, `#!/bin/sh\necho "$1 $2" >> ${folder}/asked\ncase "$2" in ${answers} esac\n`, { mode: 0o755 });
      const layout = { ...machine.layout, program: path, dataDir: join(folder, 'data'), unitDir: unitDir ?? join(folder, 'units') };
      const asked = (): string[] => readFileSync(join(folder, 'asked'), 'utf8').trimEnd().split('\n');
      return { asked, ...layout, ...hosts({ program: null, layout }) };
    };
    const cases: readonly [string, object, ReturnType<typeof refused>][] = [
      ['another node', { nodeId: 'db-1' }, refused('INVALID_STATE', /the machine is node "db-1" already/, 'other-node')],
      [
        'what turns a terminal around',
        { nodeId: 'a\u009b2J\u202e' },
        refused('INVALID_RESPONSE', /answered something else/, 'host-answer'),
      ],
      ['no digest', { csrSha256: 'A'.repeat(64) }, refused('INVALID_RESPONSE', /answered something else/, 'host-answer')],
    ];
    for (const [is, said, refusal] of cases) {
      it(`XC-041 has nothing minted by naming ${is}`, async () => {
        const id = await order({ nodeId: 'web-73' });
        await assert.rejects(lying(said).mint(id), refusal);
        assert.equal((await getEnrolment(used.db, id)).state, 'open');
        await endEnrolment(used.db, { id, as: 'cancel', reason: 'over', now: Date.now() });
      });
    }

    it('XC-037 is stopped and started once it is armed, within what is left; behind that, and when it completed, no more', async () => {
      const id = await order({ nodeId: 'web-75' });
      const { unitDir } = machine.layout;
      rmSync(join(unitDir, 'bcd.service'), { force: true });
      const { asked, install, mint, start } = lying({}, unitDir);
      await install(id);
      await mint(id);
      const before = asked().length;
      const told = machine.told().length;
      await start(id);
      await eventually('bcd was started', async () => asked().includes('run --data-dir'));
      assert.deepEqual(asked().slice(before), ['enrol arm', 'run --data-dir']);
      assert.deepEqual(machine.told().slice(told), ['daemon-reload', 'enable bcd.service', 'restart bcd.service']);
      await used.db.query({ text: `update enrolments set deadline = now() where id = $1` }, [id]);
      await assert.rejects(start(id), refused('INVALID_STATE', /its time is over/, 'enrolment-over'));
      await used.db.query({ text: `update enrolments set state = 'completed', ended_at = now() where id = $1` }, [id]);
      await start(id);
      assert.deepEqual(asked().slice(before), ['enrol arm', 'run --data-dir'], 'nothing more');
      rmSync(join(unitDir, 'bcd.service'));
    });

    it('XC-036 is stopped when it was started in vain, and left running once it has an identity', async () => {
      const id = await order({ nodeId: 'web-76' });
      const { dataDir, mint, tidy } = lying({});
      await mint(id);
      await endEnrolment(used.db, { id, as: 'fail', reason: 'it did not come', now: Date.now() });
      const told = machine.told().length;
      mkdirSync(dataDir);
      writeFileSync(join(dataDir, 'identity.json'), '{}');
      assert.match((await tidy(id)).detail, /; it has an identity, so its daemon is left running$/);
      assert.deepEqual(machine.told().slice(told), []);
      rmSync(join(dataDir, 'identity.json'));
      assert.match((await tidy(id)).detail, /; its daemon is stopped and not started again$/);
      assert.deepEqual(machine.told().slice(told), ['disable --now bcd.service']);
    });

    it('XC-036 is not enrolled as a new machine where bcd.service is another bcd’s, and that one is not stopped', async () => {
      const { unitDir, reach, tidy } = lying({});
      mkdirSync(unitDir);
      writeFileSync(join(unitDir, 'bcd.service'), 'ExecStart=/usr/local/bin/bcd run --data-dir /data/bcd --pins /etc/pins.json\n');
      const id = await order({ nodeId: 'web-77' });
      const told = machine.told().length;
      await assert.rejects(reach(id), refused('INVALID_STATE', /its bcd.service is of a bcd with another data folder/, 'machine-unfit'));
      await endEnrolment(used.db, { id, as: 'fail', reason: 'unfit', now: Date.now() });
      await tidy(id);
      assert.deepEqual(machine.told().slice(told), []);
    });

    it('XC-038 and by another key, once one was minted, neither', async () => {
      const id = await order({ nodeId: 'web-74' });
      await lying({}).mint(id);
      await lying({}).mint(id);
      await assert.rejects(lying({ csrSha256: 'b'.repeat(64) }).mint(id), refused('CONFLICT', /minted for another key/, 'other-key'));
      await endEnrolment(used.db, { id, as: 'cancel', reason: 'over', now: Date.now() });
    });
  });

  it('XC-035 XC-048 says everything that stands in the way at once, and touches nothing', async () => {
    await addNode(used.db, 'db-1');
    const id = await order({ nodeId: 'db-1', kind: 'reenrol' });
    const newer = hosts({ program: { ...program, version: '9.9.9', sha256: 'f'.repeat(64) } });
    await assert.rejects(
      newer.reach(id),
      refused('INVALID_STATE', /it runs bcd "\d+\.\d+\.\d+", not this release \(9\.9\.9\): upgrade it first/, 'machine-unfit'),
    );
    await assert.rejects(newer.install(id), refused('INVALID_STATE', /not this release/, 'machine-unfit'));
    assert.equal(existsSync(join(machine.layout.configDir, 'enrolment-pins.json')), false);
    await endEnrolment(used.db, { id, as: 'cancel', reason: 'over', now: Date.now() });
    // A machine that was enrolled, as far as anybody can see, and not as this node.
    writeFileSync(join(machine.layout.dataDir, 'identity.json'), '{}', { mode: 0o600 });
    const again = await order({ nodeId: 'web-8' });
    await assert.rejects(hosts().reach(again), refused('INVALID_STATE', /it has an identity already: enrol it again/, 'machine-unfit'));
  });

  it('XC-036 a node that is enrolled again keeps its pins and its unit until it has its next identity', async () => {
    await addNode(used.db, 'db-2');
    const [root, content] = [scratchFolder(), '#!/bin/sh\necho 9.9.9\n'];
    const layout = { program: join(root, 'bcd'), dataDir: join(root, 'data'), configDir: join(root, 'etc'), unitDir: join(root, 'units') };
    for (const folder of [layout.configDir, layout.unitDir]) mkdirSync(folder);
    const live = [join(layout.configDir, 'pins.json'), join(layout.unitDir, 'bcd.service')];
    for (const path of live) writeFileSync(path, 'in force');
    writeFileSync(layout.program, content, { mode: 0o755 });
    const sha256 = createHash('sha256').update(content).digest('hex');
    const again = hosts({ layout, program: { content: Buffer.from(content), version: '9.9.9', sha256 } });
    const id = await order({ nodeId: 'db-2', kind: 'reenrol' });
    assert.deepEqual(await again.install(id), { program: 'present' });
    for (const path of live) assert.equal(readFileSync(path, 'utf8'), 'in force', path);
    assert.equal(readFileSync(join(layout.configDir, 'enrolment-pins.json'), 'utf8'), pins);
    assert.deepEqual(readdirSync(layout.unitDir), ['bcd.service']);
    await endEnrolment(used.db, { id, as: 'cancel', reason: 'over', now: Date.now() });
  });

  it('XC-034 M69 M71 M72 a known machine that shows another host key is told nothing, and stays known by its own until a person says the new one', async () => {
    await addNode(used.db, 'web-9');
    const known = `SHA256:${'B'.repeat(42)}A`;
    const before = await order({ nodeId: 'web-9', kind: 'reenrol', hostKey: known });
    await mintEnrolment(used.db, { id: before, csrSha256: randomBytes(32), now: Date.now() });
    await used.db.query({ text: `update enrolments set state = 'completed', ended_at = now() where id = $1` }, [before]);

    const told = { trustDomain, actor: 'olga', reason: 'yearly', now: Date.now() };
    const { id, hostKey } = await orderEnrolment(used.db, { kind: 'reenrol', nodeId: 'web-9' }, told);
    assert.equal(hostKey, known);
    const refusal: unknown = await hosts()
      .reach(id)
      .catch((error: unknown) => error);
    refused('PERMISSION_DENIED', /is not the expected machine: it shows ssh-ed25519 SHA256:/, 'ssh-hostkey-mismatch')(refusal);
    await endEnrolment(used.db, { id, as: 'fail', reason: String(refusal), now: Date.now() });

    // Known by its own still: what failed taught nobody anything.
    const again = await orderEnrolment(used.db, { kind: 'reenrol', nodeId: 'web-9' }, told);
    assert.equal(again.hostKey, known);
    await endEnrolment(used.db, { id: again.id, as: 'cancel', reason: 'over', now: Date.now() });
    const anew = { kind: 'reenrol' as const, nodeId: 'web-9', hostKey: machine.hostKey };
    const rebuilt = await orderEnrolment(used.db, anew, { ...told, reason: 'rebuilt, ticket 44' });
    assert.equal(rebuilt.hostKey, machine.hostKey);

    const trail = await used.db.query<{ details: Record<string, string> }>({
      text: `select details from audit_events where subject = 'web-9' order by seq`,
    });
    const alarm = trail.find(({ details }) => details['enrolment'] === id && details['reason']?.includes('is not the expected machine'));
    for (const key of [machine.hostKey, known]) assert.ok(alarm?.details['reason']?.includes(key), 'both keys stand in the trail');
    const { hostKeyBefore, reason } = trail.at(-1)?.details ?? {};
    assert.deepEqual([hostKeyBefore, reason], [known, 'rebuilt, ticket 44']);
  });

  it('enrolment 47 a password stands in no row, no trail and no error', async () => {
    writeFileSync(join(folder, 'credentials', 'wrong'), 'hunter2-and-more\n', { mode: 0o600 });
    const id = await order({ nodeId: 'web-10', credential: 'file://wrong' });
    await assert.rejects(hosts().reach(id), (error: Error) => {
      assert.equal(inspect(error, { depth: 9 }).includes('hunter2'), false);
      return refused('UNAUTHENTICATED', /does not take the credential for root/, 'ssh-auth')(error);
    });
    for (const table of ['enrolments', 'audit_events']) {
      const rows = await used.db.query<{ all: string }>({ text: `select row_to_json(t)::text as all from ${table} t` });
      assert.equal(
        rows.some(({ all }) => all.includes('hunter2')),
        false,
        table,
      );
    }
  });
});
