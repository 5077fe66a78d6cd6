import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, link, mkdir, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { toJson } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { crashHook } from '../../daemon/state/crash-points.ts';
import { openPrivateFolder, writeDurably } from '../../daemon/state/files.ts';
import { findIdentity, getIdentity, type Identity, identityPath, saveIdentity } from '../../daemon/state/identity.ts';
import { lockFolder } from '../../daemon/state/lock.ts';
import { openMarks } from '../../daemon/state/marks.ts';
import { findStatus, openStatusFile, type StatusContent } from '../../daemon/state/status-file.ts';
import { ControlError } from '../../domain/errors.ts';
import { TrustBundleSchema } from '../../proto/index.ts';
import { createDeployment, joinedNode, type TestDeployment } from '../harness/deployment.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const gatewayUrl = 'https://gw.test:443';
const failsWith =
  (code: string, message: RegExp) =>
  (error: unknown): boolean =>
    error instanceof ControlError && error.code === code && message.test(error.message);

describe('what the daemon keeps on disk', () => {
  let deployment: TestDeployment;

  before(async () => {
    deployment = await createDeployment();
  });
  after(removeScratchFolders);

  const mode = async (path: string): Promise<string> => ((await stat(path)).mode & 0o777).toString(8);

  describe('identity.json', () => {
    it('JOIN-025 keeps who the node is and the whole trust bundle, for this user alone', async () => {
      const folder = join(scratchFolder(), 'data');
      await openPrivateFolder(folder);
      const stored = await joinedNode(deployment, {
        gatewayUrl,
        trust: {
          version: 4,
          roots: [deployment.rootA, deployment.rootB],
          removed: [{ id: 'ab'.repeat(32), switchedAt: 1, removedAt: 2, forcedReason: 'x' }],
        },
      });
      await saveIdentity(folder, stored);
      const read = await getIdentity(folder);
      const plain = ({ trust, joinKey, chain, ...rest }: Identity) => ({
        ...rest,
        trust: toJson(TrustBundleSchema, trust),
        bytes: [joinKey, ...chain].map((bytes) => Buffer.from(bytes).toString('hex')),
      });
      assert.deepEqual(plain(read.identity), plain(stored.identity));
      assert.ok(read.key.equals(stored.key));
      assert.equal(await mode(folder), '700');
      for (const name of await readdir(folder)) assert.equal(await mode(join(folder, name)), '600', name);
      const json = JSON.parse(await readFile(identityPath(folder), 'utf8'));
      assert.equal(json.trust.version, '4');
      assert.equal(json.trust.commandRoots.length, 2);
    });

    it('a renewal replaces key and certificate together; the former pair stays reachable, older keys go', async () => {
      const folder = scratchFolder();
      for (let n = 0; n < 4; n++) await saveIdentity(folder, await joinedNode(deployment, { gatewayUrl }));
      const keys = (await readdir(folder)).filter((name) => name.startsWith('key-'));
      assert.equal(keys.length, 2);
      const previous = JSON.parse(await readFile(`${identityPath(folder)}.previous`, 'utf8'));
      assert.ok(keys.includes(previous.keyFile));
      await getIdentity(folder);
    });

    it('a crash between the new key and the new identity leaves the former identity in force', async () => {
      const folder = scratchFolder();
      const stored = await joinedNode(deployment, { gatewayUrl });
      await saveIdentity(folder, stored);
      await writeFile(join(folder, 'key-0123456789abcdef.pem'), 'half a renewal', { mode: 0o600 });
      await writeFile(join(folder, '.identity.json.00.tmp'), '{"half":', { mode: 0o600 });
      assert.ok((await getIdentity(folder)).key.equals(stored.key));
    });

    it('cut short or changed anywhere it is refused with the file and what to do, or reads the same; nothing is written', async () => {
      const folder = scratchFolder();
      await saveIdentity(folder, await joinedNode(deployment, { gatewayUrl }));
      await saveIdentity(folder, await joinedNode(deployment, { gatewayUrl }));
      const path = identityPath(folder);
      const good = await readFile(path);
      const cuts = fc.integer({ min: 0, max: good.length - 3 });
      await fc.assert(
        fc.asyncProperty(cuts, async (length) => {
          await writeFile(path, good);
          await truncate(path, length);
          const error: unknown = await getIdentity(folder).then(
            () => null,
            (e: unknown) => e,
          );
          assert.ok(error instanceof ControlError && error.code === 'DATA_CORRUPT', String(error));
          assert.match(error.message, /identity\.json is damaged: .* it was left as it is$/);
          assert.match(String(error.details['hint']), /identity\.json\.previous.*bcd join --replace/);
          assert.equal((await readFile(path)).length, length);
        }),
        { numRuns: 60 },
      );
      assert.equal(JSON.parse(await readFile(`${path}.previous`, 'utf8')).format, 'better-compute/identity/1');
    });

    it('a field of the wrong kind, an unknown field and another format are named', async () => {
      const folder = scratchFolder();
      await saveIdentity(folder, await joinedNode(deployment, { gatewayUrl }));
      const json = JSON.parse(await readFile(identityPath(folder), 'utf8'));
      const changes: [Record<string, unknown>, RegExp][] = [
        [{ servingCaPin: 'sha256/short' }, /servingCaPin: is not a pin/],
        [{ trustDomain: 'UPPER' }, /trustDomain: is not a trust domain/],
        [{ gatewayUrl: 'http://gw' }, /gatewayUrl/],
        [{ extra: 1 }, /extra/],
        [{ format: 'better-compute/identity/2' }, /format/],
        [{ trust: { version: 'many' } }, /trust is no trust bundle/],
        [{ keyFile: '../../etc/shadow' }, /keyFile/],
      ];
      for (const [change, message] of changes) {
        await writeFile(identityPath(folder), JSON.stringify({ ...json, ...change }));
        await assert.rejects(getIdentity(folder), failsWith('DATA_CORRUPT', message));
      }
    });

    it('a missing key, a key of another certificate and a key that others can read are refused', async () => {
      const folder = scratchFolder();
      await saveIdentity(folder, await joinedNode(deployment, { gatewayUrl }));
      const { keyFile } = JSON.parse(await readFile(identityPath(folder), 'utf8'));
      const keyPath = join(folder, keyFile);
      await chmod(keyPath, 0o640);
      await assert.rejects(getIdentity(folder), failsWith('INVALID_STATE', /can be read by other users \(mode 640\): chmod 600/));
      await rm(keyPath);
      await assert.rejects(getIdentity(folder), failsWith('DATA_CORRUPT', /the key that identity\.json names is missing/));
      const other = (await joinedNode(deployment, { gatewayUrl })).key.export({ type: 'pkcs8', format: 'pem' });
      await writeFile(keyPath, other, { mode: 0o600 });
      await assert.rejects(getIdentity(folder), failsWith('DATA_CORRUPT', /certificate is for another key/));
      await writeFile(keyPath, 'no key', { mode: 0o600 });
      await assert.rejects(getIdentity(folder), failsWith('DATA_CORRUPT', /holds no private key/));
    });

    it('without one, it says how to join', async () => {
      const folder = scratchFolder();
      assert.equal(await findIdentity(folder), undefined);
      await assert.rejects(
        getIdentity(folder),
        (error: ControlError) => error.code === 'NOT_FOUND' && String(error.details['hint']).startsWith('bcd join --data-dir '),
      );
    });
  });

  describe('the data folder', () => {
    it('is made for this user alone; one that is open to others is refused once it holds something', async () => {
      const folder = join(scratchFolder(), 'a', 'b');
      await openPrivateFolder(folder);
      assert.equal(await mode(folder), '700');
      await chmod(folder, 0o755);
      await openPrivateFolder(folder);
      assert.equal(await mode(folder), '700', 'an empty one is closed');
      await writeFile(join(folder, 'x'), '');
      await chmod(folder, 0o755);
      await assert.rejects(openPrivateFolder(folder), failsWith('INVALID_STATE', /is open to other users \(mode 755\): chmod 700/));
      const file = join(scratchFolder(), 'file');
      await writeFile(file, '');
      await assert.rejects(openPrivateFolder(file), failsWith('INVALID_STATE', /is not a folder/));
    });

    it('is held by one bcd; the lock is gone the moment its process is killed', async () => {
      const folder = scratchFolder();
      const lock = await lockFolder(folder);
      await assert.rejects(lockFolder(folder), failsWith('CONFLICT', new RegExp(`in use by another bcd \\(pid ${process.pid}\\)`)));
      await lock.release();
      const script = `import { lockFolder } from ${JSON.stringify(new URL('../../daemon/state/lock.ts', import.meta.url).href)}; globalThis.kept = await lockFolder(${JSON.stringify(folder)}); console.log('held'); setInterval(() => undefined, 1000);`;
      const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      await once(child.stdout, 'data');
      await assert.rejects(lockFolder(folder), failsWith('CONFLICT', new RegExp(`pid ${child.pid}`)));
      child.kill('SIGKILL');
      await once(child, 'exit');
      await (await lockFolder(folder)).release();
    });
  });

  it('a file that is replaced is at each moment the old one or the new one', async () => {
    const folder = scratchFolder();
    const path = join(folder, 'f');
    await writeDurably(path, 'old');
    await link(path, join(folder, 'witness'));
    await writeDurably(path, 'new', { keepPrevious: true });
    assert.deepEqual(
      [await readFile(path, 'utf8'), await readFile(join(folder, 'witness'), 'utf8'), await readFile(`${path}.previous`, 'utf8')],
      ['new', 'old', 'old'],
    );
    await mkdir(join(folder, 'd'));
    await assert.rejects(writeDurably(join(folder, 'd'), 'x'));
    assert.deepEqual(
      (await readdir(folder)).filter((name) => name.endsWith('.tmp')),
      [],
    );
  });

  it('B52 epoch and time floor only ever rise, over restarts and over writes that race', async () => {
    const folder = scratchFolder();
    const marks = await openMarks(folder);
    await Promise.all([
      marks.raise({ epoch: 3n }),
      marks.raise({ timeFloorMs: 50 }),
      marks.raise({ epoch: 2n }),
      marks.raise({ timeFloorMs: 20 }),
    ]);
    assert.deepEqual((await openMarks(folder)).current, { epoch: 3n, timeFloorMs: 50 });
    await writeFile(join(folder, 'marks.json'), '{"epoch":"x"}');
    await assert.rejects(openMarks(folder), failsWith('DATA_CORRUPT', /marks\.json is damaged: epoch/));
  });

  it('the status file is replaced as a whole, and a burst of changes ends with the last', async () => {
    const folder = scratchFolder();
    const initial = {
      pid: 1,
      state: 'connecting',
      stateDetail: '',
      daemonVersion: '0',
      nodeId: 'n',
      siteId: 's',
      role: 'node',
      trustDomain: 't',
      generation: '1',
      gatewayUrl,
      gatewayId: null,
      connectedSinceMs: null,
      nextDialAtMs: null,
      epoch: '0',
      trustVersion: '1',
      commandRoots: [],
      approverSetPin: null,
      certificateSerial: '',
      certificateNotAfterMs: 0,
      renewsAtMs: 0,
      clockOffsetMs: null,
      runningCommands: 0,
      lastCommand: null,
      lastRefusal: null,
      lastFailure: null,
      updatedAtMs: 0,
    } satisfies StatusContent;
    const sink = openStatusFile(folder, initial, { now: () => 7, onError: (error) => assert.fail(String(error)) });
    for (let n = 1; n <= 50; n++) sink.update({ runningCommands: n });
    await sink.flush();
    assert.deepEqual([(await findStatus(folder))?.runningCommands, (await findStatus(folder))?.updatedAtMs], [50, 7]);
  });

  it('the hook for crashes refuses to work outside of tests', () => {
    assert.throws(
      () => crashHook({ BETTER_COMPUTE_TEST_ONLY_CRASH_AT: 'after-ack' }),
      failsWith('INVALID_CONFIG', /works in tests only: it needs BETTER_COMPUTE_TEST_ONLY=yes/),
    );
    assert.throws(
      () => crashHook({ BETTER_COMPUTE_TEST_ONLY_CRASH_AT: 'nowhere', BETTER_COMPUTE_TEST_ONLY: 'yes' }),
      failsWith('INVALID_CONFIG', /"nowhere" must be one of before-received/),
    );
    crashHook({})('after-ack');
  });
});
