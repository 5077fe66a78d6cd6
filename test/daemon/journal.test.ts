import assert from 'node:assert/strict';
import { copyFile, mkdir, readdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { isOrderFault, Journal, type JournalRecord, type JournalStorage, rememberedMs, unconfirmedMs } from '../../daemon/state/journal.ts';
import { type JournalFilesOptions, openJournalFiles } from '../../daemon/state/journal-files.ts';
import { decodeRecords, encodeRecord, segmentHeader } from '../../daemon/state/journal-records.ts';
import { codeOf } from '../../domain/errors.ts';
import { day, hour } from '../../domain/time.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const now = 1_800_000_000_000;
const digest = 'ab'.repeat(32);
const commandOf = (id: string, seq = 1n, expiresAtMs = now + hour) => ({
  id,
  kind: 'inventory.refresh',
  digest,
  seq,
  expiresAtMs,
  body: Buffer.from(`body of ${id}`),
});
const withoutPayload = (): Uint8Array => Buffer.from('outcome');

async function open(folder: string, options: JournalFilesOptions = {}): Promise<Journal & { tornBytes: number }> {
  const files = await openJournalFiles(folder, options);
  return Object.assign(new Journal({ ...files, withoutPayload }), { tornBytes: files.tornBytes });
}

const segments = async (folder: string): Promise<string[]> => (await readdir(folder)).filter((name) => name.endsWith('.log')).sort();

describe('the journal of commands', () => {
  after(removeScratchFolders);

  it('remembers each state over a restart', async () => {
    const folder = scratchFolder();
    const journal = await open(folder);
    for (const id of ['r', 's', 'f', 'c']) await journal.received(commandOf(id, BigInt(id.charCodeAt(0))));
    for (const id of ['s', 'f', 'c']) await journal.started(id, { atMs: now, note: { bootId: 'b-1' } });
    for (const id of ['f', 'c']) await journal.finished(id, { atMs: now + 1, result: Buffer.from(`result of ${id}`) });
    assert.equal(await journal.receipted('c'), true);
    await journal.close();
    const again = await open(folder);
    assert.deepEqual(
      again.unfinished().map((entry) => [entry.id, entry.state]),
      [
        ['r', 'received'],
        ['s', 'started'],
      ],
    );
    assert.equal(Buffer.from(again.unfinished()[0]?.body ?? []).toString(), 'body of r');
    assert.deepEqual(again.find('s')?.state === 'started' && again.find('s'), {
      ...again.find('s'),
      note: { bootId: 'b-1' },
      startedAtMs: now,
    });
    assert.deepEqual(
      again.unconfirmed().map((entry) => [entry.id, Buffer.from(entry.result).toString()]),
      [['f', 'result of f']],
    );
    assert.deepEqual(
      [again.find('c')?.state, again.find('c')?.digest],
      ['receipted', digest],
      'a confirmed command still refuses a replay',
    );
    assert.equal(again.highestSeq, BigInt('s'.charCodeAt(0)));
    await again.close();
  });

  it('a step that does not follow is a fault of ours, and a receipt for something unknown is none', async () => {
    const journal = await open(scratchFolder());
    await journal.received(commandOf('a'));
    await assert.rejects(journal.received(commandOf('a')), /journal: received does not follow received for command a/);
    await assert.rejects(journal.finished('b', { atMs: now, result: Buffer.alloc(0) }), /finished does not follow none/);
    assert.equal(await journal.receipted('a'), false);
    assert.equal(await journal.receipted('nobody'), false);
    await journal.close();
  });

  it('an id is taken from the moment its record is on its way to the disk', async () => {
    let tell: () => void = () => undefined;
    const storage: JournalStorage = {
      append: () => new Promise((resolve) => (tell = resolve)),
      replaceAll: async () => undefined,
      isLong: () => false,
      close: async () => undefined,
    };
    const journal = new Journal({ storage, records: [], withoutPayload });
    const written = journal.received(commandOf('a'));
    await assert.rejects(journal.received(commandOf('a')), (error: unknown) => {
      assert.ok(isOrderFault(error));
      assert.equal(error.code, 'INTERNAL');
      assert.equal(error.message, 'journal: received does not follow incoming for command a');
      return true;
    });
    tell();
    await written;
    assert.equal(journal.find('a')?.state, 'received');
  });

  it('a journal in which a command was received twice keeps what became of the first', () => {
    const received: JournalRecord = { type: 'received', command: commandOf('a') };
    const finished: JournalRecord = { type: 'finished', id: 'a', atMs: now, result: Buffer.from('x') };
    const storage: JournalStorage = {
      append: async () => undefined,
      replaceAll: async () => undefined,
      isLong: () => false,
      close: async () => undefined,
    };
    const journal = new Journal({ storage, records: [received, finished, received], withoutPayload });
    assert.deepEqual([journal.find('a')?.state, journal.unfinished()], ['finished', []]);
  });

  it('an interrupted last write is set aside, whatever byte it stopped at, and what was whole before it stays', async () => {
    const folder = scratchFolder();
    const journal = await open(folder);
    await journal.received(commandOf('a'));
    const [name = ''] = await segments(folder);
    const whole = (await readFile(join(folder, name))).length;
    await journal.received(commandOf('b'));
    await journal.close();
    const full = (await readFile(join(folder, name))).length;
    for (let cut = whole + 1; cut < full; cut += 7) {
      const copy = scratchFolder();
      await copyFile(join(folder, name), join(copy, name));
      await truncate(join(copy, name), cut);
      const again = await open(copy);
      assert.equal(again.tornBytes, cut - whole);
      assert.deepEqual([again.find('a')?.state, again.find('b')], ['received', undefined]);
      assert.equal((await readFile(join(copy, `${name}.torn`))).length, cut - whole);
      await again.received(commandOf('b'));
      await again.close();
      const third = await open(copy);
      assert.deepEqual([third.find('b')?.state, third.tornBytes], ['received', 0]);
      await third.close();
    }
  });

  it('any other damage stops it with the place, and leaves every byte as it was', async () => {
    const folder = scratchFolder();
    const journal = await open(folder);
    for (const id of ['a', 'b', 'c']) await journal.received(commandOf(id));
    await journal.close();
    const [name = ''] = await segments(folder);
    const good = await readFile(join(folder, name));
    const firstRecord = encodeRecord({ type: 'received', command: commandOf('a') }).length;
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: segmentHeader.length + firstRecord - 1 }),
        fc.integer({ min: 0, max: 7 }),
        async (at, bit) => {
          const copy = scratchFolder();
          const bad = Buffer.from(good);
          bad.writeUInt8((bad.at(at) ?? 0) ^ (1 << bit), at);
          await writeFile(join(copy, name), bad);
          await assert.rejects(
            open(copy),
            (error: Error) => codeOf(error) === 'DATA_CORRUPT' && /is damaged: .*; it was left as it is$/.test(error.message),
          );
          assert.deepEqual(await readFile(join(copy, name)), bad);
        },
      ),
      { numRuns: 40 },
    );
    const emptied = scratchFolder();
    await writeFile(join(emptied, name), '');
    const opened = await openJournalFiles(emptied).then(
      () => 'opened',
      (error: Error) => error.message,
    );
    assert.match(opened, /does not begin like a journal segment/);
  });

  it('a command leaves only when its expiry is proven to be past, and is still refused to the end', async () => {
    const journal = await open(scratchFolder());
    await journal.received(commandOf('a', 1n, now));
    await journal.finished('a', { atMs: now, result: Buffer.alloc(1) });
    await journal.receipted('a');
    assert.equal(await journal.compact(now + rememberedMs), 0);
    assert.equal(journal.find('a')?.digest, digest);
    assert.equal(await journal.compact(now + rememberedMs + 1), 1);
    assert.equal(journal.find('a'), undefined);
    await journal.close();
  });

  it('keeps what is not finished, and an unconfirmed result for a month', async () => {
    const journal = await open(scratchFolder());
    await journal.received(commandOf('open', 1n, now));
    await journal.received(commandOf('done', 2n, now));
    await journal.finished('done', { atMs: now, result: Buffer.alloc(1) });
    await journal.compact(now + unconfirmedMs);
    assert.equal(journal.size, 2);
    await journal.compact(now + unconfirmedMs + day);
    assert.deepEqual([journal.find('done'), journal.find('open')?.state], [undefined, 'received']);
    await journal.close();
  });

  it('a rewrite loses nothing, also of what is being written in that moment', async () => {
    const folder = scratchFolder();
    const journal = await open(folder, { longBytes: 0 });
    const writes = Array.from({ length: 40 }, (_, n) =>
      journal.received(commandOf(`c-${n}`, BigInt(n))).then(() => (n % 10 === 0 ? journal.compact(now) : undefined)),
    );
    await Promise.all(writes);
    await Promise.all([journal.compact(now), journal.started('c-7', { atMs: now, note: {} })]);
    await journal.close();
    assert.equal((await segments(folder)).length, 1);
    const again = await open(folder);
    assert.equal(again.unfinished().length, 40);
    assert.equal(again.find('c-7')?.state, 'started');
    await again.close();
  });

  it('a rewrite keeps what is on disk already while its writer has not been told yet', async () => {
    let tell: () => void = () => undefined;
    let rewritten: JournalRecord[] = [];
    const storage: JournalStorage = {
      append: () => new Promise((resolve) => (tell = resolve)),
      replaceAll: async (records) => void (rewritten = [...records]),
      isLong: () => true,
      close: async () => undefined,
    };
    const journal = new Journal({ storage, records: [], withoutPayload });
    const written = journal.received(commandOf('a'));
    await journal.compact(now);
    assert.deepEqual(
      rewritten.map((record) => record.type),
      ['snapshot', 'received'],
    );
    tell();
    await written;
    assert.equal(journal.find('a')?.state, 'received');
  });

  for (const point of ['before-compaction-rename', 'before-compaction-cleanup'] as const) {
    it(`a crash ${point} leaves the old records or the new, whole`, async () => {
      const folder = scratchFolder();
      const crash = (at: string): void => {
        if (at === point) throw new Error('crash');
      };
      const journal = await open(folder, { longBytes: 0, crash });
      await journal.received(commandOf('a', 3n));
      await journal.finished('a', { atMs: now, result: Buffer.from('x') });
      await assert.rejects(journal.compact(now), /crash/);
      const copy = scratchFolder();
      await mkdir(copy, { recursive: true });
      for (const name of await readdir(folder)) await copyFile(join(folder, name), join(copy, name));
      const again = await open(copy);
      assert.deepEqual([again.size, again.find('a')?.state, again.highestSeq], [1, 'finished', 3n]);
      await again.close();
      await journal.close();
    });
  }

  it('records survive their encoding, and no byte string decodes to something that was not written', () => {
    const records: JournalRecord[] = [
      { type: 'received', command: commandOf('a', 2n ** 63n) },
      { type: 'started', id: 'a', atMs: now, note: { bootId: 'b' } },
      { type: 'finished', id: 'a', atMs: now, result: Buffer.from([0, 255]) },
      { type: 'snapshot', highestSeq: 7n },
    ];
    const bytes = Buffer.concat([segmentHeader, ...records.map(encodeRecord)]);
    const read = decodeRecords(bytes);
    assert.equal(read.goodUntil, bytes.length);
    assert.deepEqual(
      read.records.map((record) => record.type),
      records.map((record) => record.type),
    );
    assert.deepEqual(read.records[0]?.type === 'received' && read.records[0].command.seq, 2n ** 63n);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (tail) => {
        const { records: found, goodUntil } = decodeRecords(Buffer.concat([bytes, tail]));
        assert.deepEqual([found.length, goodUntil], [records.length, bytes.length]);
      }),
    );
  });
});
