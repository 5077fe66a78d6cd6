/**
 * The journal on disk: append-only segments `00000001.log`, each append fsynced before it counts. Compaction writes a whole new
 * segment that begins with "forget what was before", syncs it, renames it into place and only then deletes the older ones, so
 * a crash at any moment leaves either all of the old records or all of the new.
 *
 * Damage: an unfinished last write is what a crash leaves; its bytes are set aside under `.torn` and cut off. Anything else that
 * does not read back stops the daemon and is left untouched, because a forgotten command could run twice.
 */
import { type FileHandle, mkdir, open, readdir, readFile, rename, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { type CrashHook, neverCrash } from './crash-points.ts';
import { createDurably, damaged, syncFolder, writeDurably } from './files.ts';
import type { JournalRecord, JournalStorage } from './journal.ts';
import { decodeRecords, encodeRecord, hasRecordAfter, segmentHeader } from './journal-records.ts';

const longBytes = 8 * 1024 * 1024;

export interface OpenedJournal {
  readonly storage: JournalStorage;
  readonly records: readonly JournalRecord[];
  /** Bytes of an interrupted last write that were set aside; 0 normally. */
  readonly tornBytes: number;
}

export interface JournalFilesOptions {
  readonly crash?: CrashHook;
  /** A segment above this size is rewritten at the next compaction. */
  readonly longBytes?: number;
}

/** @throws DATA_CORRUPT when a segment does not read back */
export async function openJournalFiles(folder: string, options: JournalFilesOptions = {}): Promise<OpenedJournal> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const numbers = await segmentNumbers(folder);
  if (numbers.length === 0) {
    await createDurably(segmentPath(folder, 1), segmentHeader);
    numbers.push(1);
  }
  const records: JournalRecord[] = [];
  let tornBytes = 0;
  for (const number of numbers) {
    const read = await readSegment(segmentPath(folder, number), { isLast: number === numbers.at(-1) });
    records.push(...read.records);
    tornBytes += read.tornBytes;
  }
  const storage = await JournalFiles.open(folder, {
    numbers,
    crash: options.crash ?? neverCrash,
    longBytes: options.longBytes ?? longBytes,
  });
  return { storage, records, tornBytes };
}

const segmentPath = (folder: string, number: number): string => join(folder, `${String(number).padStart(8, '0')}.log`);

async function segmentNumbers(folder: string): Promise<number[]> {
  const names = await readdir(folder);
  for (const name of names.filter((n) => n.endsWith('.tmp'))) await rm(join(folder, name), { force: true });
  return names
    .filter((name) => /^\d{8}\.log$/.test(name))
    .map((name) => Number(name.slice(0, 8)))
    .sort((a, b) => a - b);
}

async function readSegment(
  path: string,
  { isLast }: { isLast: boolean },
): Promise<{ records: readonly JournalRecord[]; tornBytes: number }> {
  const content = await readFile(path);
  const { records, goodUntil } = decodeRecords(content);
  if (goodUntil === content.length && goodUntil > 0) return { records, tornBytes: 0 };
  if (goodUntil === 0) throw damaged(path, 'it does not begin like a journal segment');
  if (!isLast || hasRecordAfter(content, goodUntil)) {
    throw damaged(path, `the record at byte ${goodUntil} of ${content.length} does not read back, and it is not the last one written`);
  }
  await writeDurably(`${path}.torn`, content.subarray(goodUntil));
  await truncate(path, goodUntil);
  return { records, tornBytes: content.length - goodUntil };
}

interface Waiting {
  readonly bytes: Buffer;
  readonly unsynced: (() => void) | undefined;
  readonly done: () => void;
  readonly failed: (error: unknown) => void;
}

class JournalFiles implements JournalStorage {
  readonly #folder: string;
  readonly #crash: CrashHook;
  readonly #longBytes: number;
  #numbers: number[];
  #file: FileHandle;
  #size: number;
  #waiting: Waiting[] = [];
  #work: Promise<void> = Promise.resolve();
  #broken: unknown;

  private constructor(folder: string, open: { file: FileHandle; size: number; numbers: number[]; crash: CrashHook; longBytes: number }) {
    this.#folder = folder;
    this.#file = open.file;
    this.#size = open.size;
    this.#numbers = open.numbers;
    this.#crash = open.crash;
    this.#longBytes = open.longBytes;
  }

  static async open(folder: string, options: { numbers: number[]; crash: CrashHook; longBytes: number }): Promise<JournalFiles> {
    const file = await open(segmentPath(folder, options.numbers.at(-1) ?? 1), 'r+');
    return new JournalFiles(folder, { ...options, file, size: (await file.stat()).size });
  }

  append(records: readonly JournalRecord[], unsynced?: () => void): Promise<void> {
    const bytes = Buffer.concat(records.map(encodeRecord));
    return new Promise((done, failed) => {
      this.#waiting.push({ bytes, unsynced, done, failed });
      // Whoever waits while a sync is under way shares the next one.
      this.#work = this.#work.then(() => this.#flush());
    });
  }

  async #flush(): Promise<void> {
    const batch = this.#waiting;
    if (batch.length === 0) return;
    this.#waiting = [];
    try {
      if (this.#broken !== undefined) throw this.#broken;
      const bytes = Buffer.concat(batch.map((one) => one.bytes));
      await this.#file.write(bytes, 0, bytes.length, this.#size);
      for (const one of batch) one.unsynced?.();
      await this.#file.datasync();
      this.#size += bytes.length;
      for (const one of batch) one.done();
    } catch (cause) {
      // After a failed sync nobody knows what is on disk: nothing more is promised until the journal is opened again.
      this.#broken ??= new ControlError('UNAVAILABLE', `the journal in ${this.#folder} cannot be written`, {
        cause,
        details: { reason: 'journal-write' },
      });
      for (const one of batch) one.failed(this.#broken);
    }
  }

  replaceAll(records: Iterable<JournalRecord>): Promise<void> {
    const done = this.#work.then(() => this.#flush()).then(() => this.#replace(records));
    this.#work = done.catch(() => undefined);
    return done;
  }

  async #replace(records: Iterable<JournalRecord>): Promise<void> {
    const number = (this.#numbers.at(-1) ?? 0) + 1;
    const path = segmentPath(this.#folder, number);
    const content = Buffer.concat([segmentHeader, ...[...records].map(encodeRecord)]);
    const temporary = `${path}.tmp`;
    const next = await open(temporary, 'w+', 0o600);
    let renamed = false;
    try {
      await next.writeFile(content);
      await next.sync();
      this.#crash('before-compaction-rename');
      await rename(temporary, path);
      renamed = true;
      await syncFolder(this.#folder);
      this.#crash('before-compaction-cleanup');
    } catch (error) {
      await next.close();
      // The new segment is there: what was appended to the old one from now on would be forgotten at the next start.
      if (renamed) this.#broken ??= error;
      else await rm(temporary, { force: true });
      throw error;
    }
    const [former, formerNumbers] = [this.#file, this.#numbers];
    this.#file = next;
    this.#size = content.length;
    this.#numbers = [number];
    await former.close();
    for (const old of formerNumbers) await rm(segmentPath(this.#folder, old), { force: true });
  }

  isLong(): boolean {
    return this.#size > this.#longBytes;
  }

  async close(): Promise<void> {
    await this.#work;
    await this.#file.close();
  }
}
