/**
 * The key bundle as a file: pki/bundle's BundleStore over one path.
 *
 * Invariants: the file is always whole (temporary file, fsync, rename, fsync of the folder), mode 0600, and never overwritten by a
 * writer that read an older content: replace compares the revision under a lock file. The lock names its process, so the lock
 * of a process that died is taken over; a bundle is written by people and by one rotation at a time, so nobody waits long.
 *
 * What it does not do: judge the content, or lock across hosts that share a folder (the PostgreSQL row is for that).
 */
import { createHash, randomUUID } from 'node:crypto';
import { type FileHandle, link, mkdir, open, readdir, readFile, rename, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { ControlError } from '../domain/errors.ts';
import type { BundleStore } from '../pki/bundle/index.ts';

export interface BundleFileStore extends BundleStore {
  readonly path: string;
  /** Writes the first content; makes the folder. @throws INVALID_STATE when the file exists: it is never overwritten (CLI-006) */
  create(text: string): Promise<{ readonly revision: string }>;
}

export interface BundleFileStoreOptions {
  readonly watchIntervalMs?: number;
  readonly lockTimeoutMs?: number;
}

const mode = 0o600;
const lockRetryMs = 50;
const defaultLockTimeoutMs = 5_000;

export function createBundleFileStore(path: string, options: BundleFileStoreOptions = {}): BundleFileStore {
  const { watchIntervalMs = 1_000, lockTimeoutMs = defaultLockTimeoutMs } = options;
  const known: Known = { revision: null };
  const remember = <T extends { readonly revision: string }>(stored: T): T => {
    known.revision = stored.revision;
    return stored;
  };
  return {
    path,
    read: async () => remember(await readBundle(path)),
    replace: async (text, expectedRevision) => {
      await withLock(path, lockTimeoutMs, async () => {
        const { revision } = await readBundle(path);
        if (revision !== expectedRevision) {
          throw new ControlError('CONFLICT', `${path} was changed by someone else`, { details: { reason: 'bundle-revision', path } });
        }
        await writeWhole(path, text, (temporary) => rename(temporary, path)).catch(cannotWrite(path));
      });
      return remember({ revision: revisionOf(text) });
    },
    create: async (text) => {
      await createWhole(path, text);
      return remember({ revision: revisionOf(text) });
    },
    watch: (onChange) => watchRevision({ read: () => readBundle(path), known, intervalMs: watchIntervalMs }, onChange),
  };
}

/** The revision this store last saw. */
interface Known {
  revision: string | null;
}

/**
 * Writes a file that must not exist yet, whole and with mode 0600; makes its folder, for the owner only.
 *
 * @throws INVALID_STATE when it exists; INVALID_CONFIG when it cannot be written
 */
export async function createWhole(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 }).catch(cannotWrite(path));
  // link fails where rename would overwrite: the file appears whole, and only if there was none.
  await writeWhole(path, text, (temporary) => link(temporary, path)).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'EEXIST') throw cannotWrite(path)(cause);
    throw new ControlError('INVALID_STATE', `${path} already exists: it is never overwritten`, {
      cause,
      details: { reason: 'file-exists', path },
    });
  });
}

/** Writes a file over an earlier one in one step: a reader sees the old or the new, never less (CLI-026). @throws INVALID_CONFIG */
export async function replaceWhole(path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 }).catch(cannotWrite(path));
  await writeWhole(path, content, (temporary) => rename(temporary, path)).catch(cannotWrite(path));
}

const cannotWrite =
  (path: string) =>
  (cause: NodeJS.ErrnoException): never => {
    throw new ControlError('INVALID_CONFIG', `${path} cannot be written (${cause.code ?? 'unknown fault'})`, {
      cause,
      details: { reason: 'not-writable', path },
    });
  };

const revisionOf = (text: string): string => createHash('sha256').update(text, 'utf8').digest('hex');

async function readBundle(path: string): Promise<{ text: string; revision: string }> {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await readFile(path));
    return { text, revision: revisionOf(text) };
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') {
      throw new ControlError('NOT_FOUND', `there is no key bundle at ${path}`, {
        cause,
        details: { reason: 'no-bundle', path, hint: 'create one: better-compute pki init --trust-domain NAME, or name another with --pki' },
      });
    }
    throw new ControlError('INVALID_CONFIG', `the key bundle ${path} cannot be read (${code ?? 'it is not UTF-8'})`, {
      cause,
      details: { reason: 'bundle-unreadable', path },
    });
  }
}

/**
 * Writes a file beside `path`, makes it durable and puts it in place.
 *
 * @param place moves or links the temporary file to `path`
 */
async function writeWhole(path: string, content: string | Uint8Array, place: (temporary: string) => Promise<void>): Promise<void> {
  const temporary = temporaryFor(path);
  await sweepTemporaries(path);
  try {
    await written(await open(temporary, 'wx', mode), content);
    await place(temporary);
    await syncFolder(dirname(path));
  } finally {
    await unlink(temporary).catch(() => undefined);
  }
}

const temporaryFor = (path: string): string => `${path}.${process.pid}.${randomUUID()}.tmp`;

/** Of which process a file beside `name` is the temporary one; undefined for any other file. */
function writerOf(file: string, name: string): number | undefined {
  if (!file.startsWith(`${name}.`)) return undefined;
  const match = /^(\d{1,10})\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp$/.exec(file.slice(name.length + 1));
  return match === null ? undefined : Number(match[1]);
}

/**
 * Takes away what a process that was killed half way left beside `path`: it may hold keys, and nobody else would ever look. Only of
 * processes that are gone from this host; one of another host that shares the folder and has a number of none here loses the write
 * it was in, and says so.
 */
export async function sweepTemporaries(path: string): Promise<void> {
  const [folder, name] = [dirname(path), basename(path)];
  const left = (await readdir(folder).catch(() => [])).filter((file) => {
    const pid = writerOf(file, name);
    return pid !== undefined && isGone(pid);
  });
  for (const file of left) await unlink(join(folder, file)).catch(() => undefined);
}

/** EPERM means that it lives and is another user's. */
function isGone(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}

/** Writes a durable file of mode 0600 beside `path`; the caller puts it in place. @throws INVALID_CONFIG, leaving nothing */
export async function stageWhole(path: string, text: string): Promise<string> {
  const temporary = temporaryFor(path);
  await sweepTemporaries(path);
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await written(await open(temporary, 'wx', mode), text);
    return temporary;
  } catch (cause) {
    await unlink(temporary).catch(() => undefined);
    return cannotWrite(path)(cause as NodeJS.ErrnoException);
  }
}

async function written(file: FileHandle, content: string | Uint8Array): Promise<void> {
  try {
    // The umask may have taken bits away, never the ones that matter; 0600 is stated again all the same.
    await file.chmod(mode);
    await file.writeFile(content, 'utf8');
    await file.sync();
  } finally {
    await file.close();
  }
}

export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Runs `work` while no other process of this host that asks the same way works on `path`; makes its folder.
 *
 * @throws CONFLICT (bundle-locked) when another one holds it for longer than 5 s; INVALID_CONFIG when no lock can be written there
 */
export async function withFileLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 }).catch(cannotWrite(path));
  return withLock(path, defaultLockTimeoutMs, work);
}

async function withLock<T>(path: string, timeoutMs: number, work: () => Promise<T>): Promise<T> {
  const lock = `${path}.lock`;
  const content = JSON.stringify({ pid: process.pid, host: hostname(), token: randomUUID() });
  const deadline = performance.now() + timeoutMs;
  while (!(await takeLock(lock, content))) {
    const holder = await readLock(lock);
    if (holder !== null && isAbandoned(holder)) await removeAbandoned(lock, holder);
    else if (performance.now() > deadline) throw lockedBy(path, holder);
    else await new Promise((resolve) => setTimeout(resolve, lockRetryMs));
  }
  try {
    return await work();
  } finally {
    if ((await readLock(lock)) === content) await unlink(lock).catch(() => undefined);
  }
}

/** By link, so that the lock is never seen without the process that holds it. */
async function takeLock(lock: string, content: string): Promise<boolean> {
  try {
    await writeWhole(lock, content, (temporary) => link(temporary, lock));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    return cannotWrite(lock)(error as NodeJS.ErrnoException);
  }
}

const readLock = (lock: string): Promise<string | null> => readFile(lock, 'utf8').catch(() => null);

function isAbandoned(content: string): boolean {
  const holder = parseHolder(content);
  return holder !== null && holder.host === hostname() && isGone(holder.pid);
}

/** Moved aside first: of two that find it abandoned, one moves it, and only then is it gone. */
async function removeAbandoned(lock: string, expected: string): Promise<void> {
  const aside = `${lock}.${randomUUID()}`;
  const moved = await rename(lock, aside).then(
    () => true,
    () => false,
  );
  if (!moved) return;
  // A live lock that took its place in between goes back.
  if ((await readLock(aside)) !== expected) await link(aside, lock).catch(() => undefined);
  await unlink(aside).catch(() => undefined);
}

function parseHolder(content: string): { pid: number; host: string } | null {
  try {
    const { pid, host } = JSON.parse(content) as { pid?: unknown; host?: unknown };
    return Number.isSafeInteger(pid) && (pid as number) > 0 && typeof host === 'string' ? { pid: pid as number, host } : null;
  } catch {
    return null;
  }
}

function lockedBy(path: string, content: string | null): ControlError {
  const holder = content === null ? null : parseHolder(content);
  const who = holder === null ? 'an unknown process' : `process ${holder.pid} on ${holder.host}`;
  return new ControlError('CONFLICT', `${path} is locked by ${who}`, {
    details: { reason: 'bundle-locked', path, hint: `wait for it to end; if it is gone, remove ${path}.lock` },
  });
}

interface Watched {
  read(): Promise<{ revision: string }>;
  readonly known: Known;
  readonly intervalMs: number;
}

/** By content, not by event: events are lost on some file systems, and a touched file is no change (H-12). */
function watchRevision({ read, known, intervalMs }: Watched, onChange: () => void): { close(): void } {
  let busy = false;
  const look = async (): Promise<void> => {
    if (busy) return;
    busy = true;
    const before = known.revision;
    // While the file is away or unreadable, what was known stays known.
    const current = await read().catch(() => null);
    busy = false;
    if (current === null || current.revision === known.revision) return;
    known.revision = current.revision;
    if (before !== null) onChange();
  };
  void look();
  const timer = setInterval(() => void look(), intervalMs);
  timer.unref();
  return { close: () => clearInterval(timer) };
}
