import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { daemonUpgradeHandler, type UpgradePorts } from '../../daemon/kinds/daemon-upgrade.ts';
import { type KindContext, type KindEnd, leftToNextStart } from '../../daemon/kinds/handler.ts';
import { probation, watchTrial } from '../../daemon/upgrade/probation.ts';
import { readTrial } from '../../daemon/upgrade/trial.ts';
import type { Release } from '../../domain/commands/release.ts';
import { ControlError } from '../../domain/errors.ts';
import { signDaemonRelease } from '../../pki/envelope/index.ts';
import { type Signer, signerFromPrivateKey } from '../../pki/x509/index.ts';
import { type DaemonUpgrade, DaemonUpgradeSchema } from '../../proto/index.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const sha256 = (content: string): string => createHash('sha256').update(content).digest('hex');
const newSigner = (): Signer => signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
/** A program that says its version, and nothing else. */
const programOf = (version: string): string => `#!/bin/sh\necho ${version}\n`;

describe('daemon.upgrade', () => {
  const release = newSigner();
  let served: Server;
  let content: string;
  let requests: number;

  before(async () => {
    served = createServer((_request, answer) => {
      requests += 1;
      answer.end(content);
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => served.once('listening', resolve));
  });
  beforeEach(() => {
    requests = 0;
    content = programOf('0.2.0');
  });
  after(() => {
    served.close();
    removeScratchFolders();
  });

  const url = (): string => `http://127.0.0.1:${(served.address() as AddressInfo).port}/bcd`;

  async function upgradeOf(over: Partial<Release> = {}, signer: Signer = release): Promise<DaemonUpgrade> {
    const fields = { version: '0.2.0', sha256: sha256(content), bytes: content.length, platform: 'any', releasedAtMs: 1, ...over };
    return create(DaemonUpgradeSchema, { ...(await signDaemonRelease(signer, fields)), url: url() });
  }

  interface Machine extends UpgradePorts {
    readonly left: string[];
    installed(): Promise<string>;
  }

  async function machine(over: Partial<UpgradePorts> = {}): Promise<Machine> {
    const folder = scratchFolder();
    const program = join(folder, 'bcd');
    await writeFile(program, programOf('0.1.0'), { mode: 0o755 });
    const dataDir = join(folder, 'data');
    await mkdir(dataDir, { mode: 0o700 });
    const left: string[] = [];
    return {
      releaseKeys: [release.spki],
      program,
      version: '0.1.0',
      platform: 'linux-x64',
      dataDir,
      leave: (why) => void left.push(why),
      left,
      installed: () => readFile(program, 'utf8'),
      ...over,
    };
  }

  const context = (over: Partial<KindContext> = {}): KindContext => ({
    commandId: 'c-1',
    signal: new AbortController().signal,
    now: () => 1_800_000_000_000,
    progress: () => undefined,
    note: { versionBefore: '0.1.0' },
    ...over,
  });

  /** As the executor does: looks first, then does it. */
  async function run(on: Machine, upgrade: DaemonUpgrade): Promise<KindEnd> {
    const handler = daemonUpgradeHandler(on);
    await handler.prepare?.(upgrade, context());
    return handler.run(upgrade, context());
  }

  const recover = (on: UpgradePorts, upgrade: DaemonUpgrade): Promise<KindEnd> =>
    daemonUpgradeHandler(on).recover?.(upgrade, context()) ?? assert.fail('it can always say what is in place');

  const leaves = (error: unknown): boolean => error === leftToNextStart;
  const refusedAs = (code: string, reason: string) => (error: unknown) =>
    error instanceof ControlError && error.code === code && error.details['reason'] === reason;

  it('KIND-009 SKEW-016 puts a signed release in its place, keeps the one before, and leaves the end to the new program', async () => {
    const on = await machine();
    const upgrade = await upgradeOf();
    await assert.rejects(run(on, upgrade), leaves);
    assert.equal(await on.installed(), content);
    assert.equal((await stat(on.program)).mode & 0o777, 0o755);
    assert.equal(await readFile(`${on.program}.previous`, 'utf8'), programOf('0.1.0'));
    assert.match(on.left.join(), /^bcd 0\.1\.0 is replaced by 0\.2\.0/);
    assert.equal((await readTrial(on.dataDir))?.state, 'trial');
    const end = await recover({ ...on, version: '0.2.0' }, upgrade);
    assert.deepEqual(end.kind === 'succeeded' && end.value, {
      versionBefore: '0.1.0',
      versionAfter: '0.2.0',
      sha256: Buffer.from(sha256(content), 'hex'),
    });
    assert.equal(await readTrial(on.dataDir), undefined);
  });

  it('KIND-009 asked again for what runs already, it has nothing to do', async () => {
    const on = await machine({ version: '0.2.0' });
    await writeFile(on.program, content);
    assert.equal((await run(on, await upgradeOf())).kind, 'succeeded');
    assert.deepEqual([requests, on.left], [0, []]);
  });

  it('SKEW-017 a machine without a release key replaces nothing', async () => {
    const on = await machine({ releaseKeys: [] });
    await assert.rejects(run(on, await upgradeOf()), refusedAs('UNSUPPORTED', 'no-release-keys'));
    await assert.rejects(daemonUpgradeHandler(null).run(await upgradeOf(), context()), refusedAs('UNSUPPORTED', 'no-release-keys'));
    assert.deepEqual([requests, await on.installed()], [0, programOf('0.1.0')]);
  });

  const changed = (upgrade: DaemonUpgrade, over: Partial<DaemonUpgrade>): DaemonUpgrade =>
    create(DaemonUpgradeSchema, { ...upgrade, ...over });
  const refusals: readonly [what: string, code: string, reason: string, upgrade: () => Promise<DaemonUpgrade>][] = [
    [
      'one that nobody signed',
      'BAD_SIGNATURE',
      'unsigned',
      async () => create(DaemonUpgradeSchema, { release: (await upgradeOf()).release, url: url() }),
    ],
    ['one by another key', 'BAD_SIGNATURE', 'unknown-release-key', () => upgradeOf({}, newSigner())],
    [
      'one whose bytes were changed',
      'BAD_SIGNATURE',
      'bad-signature',
      async () => changed(await upgradeOf(), { release: (await upgradeOf({ version: '0.3.0' })).release }),
    ],
    ['an older one', 'INVALID_STATE', 'downgrade', () => upgradeOf({ version: '0.0.9' })],
    ['another program of the same version', 'INVALID_STATE', 'other-program', () => upgradeOf({ version: '0.1.0' })],
    ['one for another platform', 'UNSUPPORTED', 'platform', () => upgradeOf({ platform: 'linux-arm64' })],
  ];
  for (const [what, code, reason, upgrade] of refusals) {
    it(`KIND-009 refuses ${what} before anything is fetched`, async () => {
      const on = await machine();
      await assert.rejects(run(on, await upgrade()), refusedAs(code, reason));
      assert.deepEqual([requests, await on.installed(), on.left], [0, programOf('0.1.0'), []]);
    });
  }

  const bad: readonly [what: string, code: string, reason: string, serve: () => void, over: Partial<Release>][] = [
    ['other bytes than were signed', 'BAD_SIGNATURE', 'program-differs', () => (content = programOf('0.2.1')), {}],
    ['more bytes than were signed', 'BAD_SIGNATURE', 'program-differs', () => (content += '#'), {}],
    ['a program that calls itself otherwise', 'INVALID_STATE', 'program-fails', () => undefined, { version: '0.3.0' }],
  ];
  for (const [what, code, reason, serve, over] of bad) {
    it(`KIND-009 ${what}: nothing is replaced, and nothing is left behind`, async () => {
      const on = await machine();
      const upgrade = await upgradeOf(over);
      serve();
      await assert.rejects(run(on, upgrade), refusedAs(code, reason));
      assert.equal(await on.installed(), programOf('0.1.0'));
      assert.deepEqual(
        [(await readdir(dirname(on.program))).sort(), await readTrial(on.dataDir), on.left],
        [['bcd', 'data'], undefined, []],
      );
    });
  }

  it('KIND-009 a program that is no file of its own is not replaced', async () => {
    const on = await machine();
    const program = join(on.dataDir, 'linked');
    await symlink(on.program, program);
    await assert.rejects(run({ ...on, program }, await upgradeOf()), refusedAs('INVALID_STATE', 'program-not-a-file'));
    assert.equal(requests, 0);
  });

  describe('after a crash', () => {
    it('KIND-009 noted and not replaced: it is fetched again and replaced', async () => {
      const on = await machine();
      const upgrade = await upgradeOf();
      await assert.rejects(recover(on, upgrade), leaves);
      assert.deepEqual([requests, await on.installed()], [1, content]);
    });

    it('KIND-009 replaced and not left: it leaves, and fetches nothing', async () => {
      const on = await machine();
      const upgrade = await upgradeOf();
      await assert.rejects(run(on, upgrade), leaves);
      requests = 0;
      await assert.rejects(recover(on, upgrade), leaves);
      assert.deepEqual([requests, on.left.length], [0, 2]);
    });
  });

  describe('a new program on probation', () => {
    const log = { info: () => undefined, warn: () => undefined, error: () => undefined };

    async function onTrial(): Promise<{ on: Machine; upgrade: DaemonUpgrade; start: (withinMs?: number) => Promise<() => void> }> {
      const on = await machine();
      const upgrade = await upgradeOf();
      await assert.rejects(run(on, upgrade), leaves);
      on.left.splice(0);
      const start = (withinMs?: number): Promise<() => void> =>
        watchTrial({
          dataDir: on.dataDir,
          version: '0.2.0',
          log: log as never,
          leave: on.leave,
          ...(withinMs === undefined ? {} : { withinMs }),
        });
      return { on, upgrade, start };
    }

    it('KIND-009 is taken back after some starts without a session, and the old one reports it', async () => {
      const { on, upgrade, start } = await onTrial();
      for (let n = 0; n < probation.starts; n++) (await start())();
      assert.deepEqual([on.left, await on.installed()], [[], content]);
      (await start())();
      assert.deepEqual([on.left, await on.installed()], [['back to bcd 0.1.0'], programOf('0.1.0')]);
      const end = await recover(on, upgrade);
      assert.ok(end.kind === 'failed' && /bcd 0\.2\.0 was put in place and taken back: it had no session in 5 starts/.test(end.message));
      assert.equal(await readTrial(on.dataDir), undefined);
    });

    it('KIND-009 is taken back when it has had no session for its time', async () => {
      const { on, start } = await onTrial();
      const left = new Promise<string>((resolve) => {
        const push = on.left.push.bind(on.left);
        on.left.push = (why: string) => (resolve(why), push(why));
      });
      await start(10);
      assert.equal(await left, 'back to bcd 0.1.0');
      assert.equal(await on.installed(), programOf('0.1.0'));
    });

    it('KIND-009 stays once it had a session', async () => {
      const { on, upgrade, start } = await onTrial();
      const ends = await start();
      assert.equal((await recover({ ...on, version: '0.2.0' }, upgrade)).kind, 'succeeded');
      ends();
      for (let n = 0; n <= probation.starts; n++) (await start())();
      assert.deepEqual([on.left, await on.installed()], [[], content]);
    });
  });
});
