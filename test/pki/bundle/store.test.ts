import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  addCommandRoot,
  type BundleStore,
  encodeBundle,
  openBundle,
  type PkiBundle,
  switchCommandRoot,
  updateBundle,
} from '../../../pki/bundle/index.ts';
import { createBundleFileStore } from '../../../runtime/bundle-file-store.ts';
import { now, refusal, secret, sharedBundle } from '../support.ts';

describe('the file store of the bundle', () => {
  let folder: string;
  let path: string;
  let bundle: PkiBundle;
  let text: string;
  before(async () => {
    bundle = await sharedBundle();
    text = encodeBundle(bundle, { secret });
  });
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'bundle-'));
    path = join(folder, 'pki.json');
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const mode = (): number => statSync(path).mode & 0o777;

  it('CLI-004 CLI-005 creates one file of mode 0600, whatever the umask says', async () => {
    const umask = process.umask(0);
    try {
      await createBundleFileStore(path).create(text);
    } finally {
      process.umask(umask);
    }
    assert.equal(mode(), 0o600);
    assert.deepEqual(readdirSync(folder), ['pki.json']);
    assert.equal(readFileSync(path, 'utf8'), text);
  });

  it('CLI-006 never overwrites a file by creating', async () => {
    writeFileSync(path, 'precious');
    await assert.rejects(
      createBundleFileStore(path).create(text),
      refusal('INVALID_STATE', 'file-exists', /pki\.json already exists: it is never overwritten/),
    );
    assert.equal(readFileSync(path, 'utf8'), 'precious');
    assert.deepEqual(readdirSync(folder), ['pki.json']);
  });

  it('of 20 that create at once, one succeeds', async () => {
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, (_, i) => createBundleFileStore(path).create(`${text}${' '.repeat(i)}`)),
    );
    assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1);
    assert.deepEqual(readdirSync(folder), ['pki.json']);
  });

  it('KEY-003 a missing bundle is NOT_FOUND and says how to make one', async () => {
    await assert.rejects(createBundleFileStore(path).read(), (error: Error & { details: Record<string, unknown> }) => {
      refusal('NOT_FOUND', 'no-bundle', /there is no key bundle at .*pki\.json/)(error);
      assert.match(String(error.details['hint']), /pki init/);
      return true;
    });
  });

  it('what is not UTF-8 or not a file is INVALID_CONFIG', async () => {
    writeFileSync(path, Buffer.from([0xff, 0xfe]));
    await assert.rejects(
      createBundleFileStore(path).read(),
      refusal('INVALID_CONFIG', 'bundle-unreadable', /it is not UTF-8|ERR_ENCODING/),
    );
    await assert.rejects(createBundleFileStore(folder).read(), refusal('INVALID_CONFIG', 'bundle-unreadable', /EISDIR/));
  });

  it('replaces at the revision that was read, and CONFLICT at another', async () => {
    const store = createBundleFileStore(path);
    const { revision } = await store.create(text);
    const next = await store.replace(`${text} `, revision);
    assert.deepEqual(await store.read(), { text: `${text} `, revision: next.revision });
    await assert.rejects(store.replace(text, revision), refusal('CONFLICT', 'bundle-revision', /was changed by someone else/));
    assert.equal(mode(), 0o600);
    assert.deepEqual(readdirSync(folder), ['pki.json']);
  });

  it('tightens the mode of a file that others could read', async () => {
    const store = createBundleFileStore(path);
    const { revision } = await store.create(text);
    chmodSync(path, 0o644);
    await store.replace(`${text} `, revision);
    assert.equal(mode(), 0o600);
  });

  it('a lock of a live process holds the file, and is named', async () => {
    const store = createBundleFileStore(path, { lockTimeoutMs: 0 });
    const { revision } = await store.create(text);
    writeFileSync(`${path}.lock`, JSON.stringify({ pid: process.pid, host: hostname(), token: 'x' }));
    await assert.rejects(
      store.replace(text, revision),
      refusal('CONFLICT', 'bundle-locked', new RegExp(`is locked by process ${process.pid} on`)),
    );
    writeFileSync(`${path}.lock`, JSON.stringify({ pid: 1, host: 'another-host', token: 'x' }));
    await assert.rejects(store.replace(text, revision), refusal('CONFLICT', 'bundle-locked', /is locked by process 1 on another-host/));
  });

  it('a lock of a process that died is taken over', async () => {
    const child = spawn(process.execPath, ['-e', '']);
    await once(child, 'exit');
    const store = createBundleFileStore(path, { lockTimeoutMs: 2_000 });
    const { revision } = await store.create(text);
    writeFileSync(`${path}.lock`, JSON.stringify({ pid: child.pid, host: hostname(), token: 'x' }));
    await Promise.allSettled([store.replace(`${text} `, revision), store.replace(`${text}  `, revision)]);
    assert.notEqual((await store.read()).revision, revision);
    assert.deepEqual(readdirSync(folder), ['pki.json']);
  });

  it('takes away what a process that was killed left beside the file, and nothing of a live one or of another file', async () => {
    const store = createBundleFileStore(path);
    await store.create('{}');
    const dead = spawnSync('true').pid;
    const beside = (pid: number, name = 'pki.json'): string => join(folder, `${name}.${pid}.${randomUUID()}.tmp`);
    const [gone, lock, live, other, foreign] = [
      beside(dead),
      beside(dead, 'pki.json.lock'),
      beside(process.pid),
      beside(dead, 'other.json'),
      join(folder, 'pki.json.tmp'),
    ];
    for (const file of [gone, lock, live, other, foreign]) writeFileSync(file, 'half of a key', { mode: 0o600 });
    const { revision } = await store.read();
    await store.replace('{"a":1}', revision);
    assert.deepEqual([gone, lock, live, other, foreign].map(existsSync), [false, false, true, true, true]);
    for (const file of [live, other, foreign]) rmSync(file);
  });

  it('tells a watcher of a change by another, once, and not of a touch', async () => {
    const store = createBundleFileStore(path, { watchIntervalMs: 5 });
    await store.create(text);
    let changes = 0;
    let told: () => void = () => undefined;
    const nextChange = () => new Promise<void>((resolve) => (told = resolve));
    const watcher = store.watch(() => {
      changes++;
      told();
    });
    const other = createBundleFileStore(path);
    const { revision } = await other.read();
    const first = nextChange();
    // The same content in a new file, then another content: only the second is a change.
    const next = await other.replace(`${text} `, (await other.replace(text, revision)).revision);
    await first;
    assert.equal(changes, 1);
    const second = nextChange();
    await other.replace(text, next.revision);
    await second;
    assert.equal(changes, 2);
    watcher.close();
  });

  it('tells a watcher of what changed between the last read and the start of watching', async () => {
    const store = createBundleFileStore(path, { watchIntervalMs: 60_000 });
    await store.create(text);
    await store.read();
    writeFileSync(path, `${text} `);
    await new Promise<void>((resolve) => {
      const watcher = store.watch(() => {
        watcher.close();
        resolve();
      });
    });
  });

  describe('updateBundle', () => {
    it('KEY-023 H-07 raises the generation by one and seals in the current form', async () => {
      const store = createBundleFileStore(path);
      await store.create(text);
      const updated = await updateBundle(store, secret, async (before) => (await addCommandRoot(before, { rotationId: 'r1', now })).bundle);
      assert.equal(updated.changed, true);
      assert.equal(updated.bundle.generation, bundle.generation + 1);
      assert.equal(updated.bundle.authenticated, true);
      assert.deepEqual(openBundle((await store.read()).text, { secret }).commandRoots, updated.bundle.commandRoots);
    });

    it('unchanged writes nothing', async () => {
      const store = createBundleFileStore(path);
      const { revision } = await store.create(text);
      const answer = await updateBundle(store, secret, async () => 'unchanged');
      assert.deepEqual([answer.changed, answer.revision, answer.bundle.generation], [false, revision, bundle.generation]);
    });

    it('CLI-030 keeps an unsealed bundle unsealed without a secret', async () => {
      const store = createBundleFileStore(path);
      await store.create(encodeBundle(bundle, { plaintext: true }));
      const { bundle: after } = await updateBundle(store, undefined, async (before) => ({ ...before, trustVersion: 9 }));
      assert.deepEqual([after.seal, after.trustVersion], ['plaintext', 9]);
    });

    it('A-PKI-10 refuses to vouch: an unsealed bundle where there is a secret, a sealed one where there is none', async () => {
      const store = createBundleFileStore(path);
      const { revision } = await store.create(encodeBundle(bundle, { plaintext: true }));
      const raise = async (before: PkiBundle): Promise<PkiBundle> => ({ ...before, trustVersion: 9 });
      await assert.rejects(updateBundle(store, secret, raise), refusal('INVALID_CONFIG', 'unauthenticated', /not sealed although/));
      await store.replace(text, revision);
      await assert.rejects(updateBundle(store, undefined, raise), refusal('MISSING_ENV', 'secret-missing', /is sealed/));
    });

    it('C16 C18 of two operators who both add a root, one wins and the other is told; nothing is lost', async () => {
      const store = createBundleFileStore(path);
      await store.create(text);
      const add = (rotationId: string) =>
        updateBundle(store, secret, async (before) => (await addCommandRoot(before, { rotationId, now })).bundle);
      const results = await Promise.allSettled([add('one'), add('two')]);
      const failed = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
      assert.equal(failed.length, 1);
      refusal('INVALID_STATE', 'rotation-in-progress', /rotation (one|two) is in progress/)(failed[0]);
      assert.equal(openBundle((await store.read()).text, { secret }).commandRootsById.size, 2);
    });

    it('C18 ten writers at once lose no write', async () => {
      const store = createBundleFileStore(path);
      await store.create(text);
      const raise = () => updateBundle(store, secret, async (before) => ({ ...before, trustVersion: before.trustVersion + 1 }));
      for (let round = 0; round < 2; round++) await Promise.all(Array.from({ length: 5 }, raise));
      const after = openBundle((await store.read()).text, { secret });
      assert.deepEqual([after.trustVersion, after.generation], [bundle.trustVersion + 10, bundle.generation + 10]);
    });

    it('gives up with CONFLICT when other writers are always faster', async () => {
      const busy: BundleStore = {
        read: async () => ({ text, revision: '1' }),
        replace: () => createBundleFileStore(path).replace(text, 'never'),
        watch: () => ({ close: () => undefined }),
      };
      writeFileSync(path, text);
      await assert.rejects(
        updateBundle(busy, secret, async (before) => before),
        refusal('CONFLICT', 'bundle-busy', /changed under 5 attempts/),
      );
    });

    it('a refused change leaves the file as it was', async () => {
      const store = createBundleFileStore(path);
      await store.create(text);
      await assert.rejects(
        updateBundle(store, secret, async (before) => switchCommandRoot(before, { rotationId: 'r1', now }).bundle),
        refusal('INVALID_STATE', 'out-of-order', /switch without add/),
      );
      assert.equal(readFileSync(path, 'utf8'), text);
    });
  });
});
