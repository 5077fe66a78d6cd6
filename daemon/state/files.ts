/**
 * How the daemon writes what it must not lose. A file is replaced as a whole: a temporary file beside it, fsync, rename,
 * fsync of the folder. Whatever moment the machine loses power, a reader sees the old content or the new one, never a mixture.
 */
import { randomBytes } from 'node:crypto';
import { chmod, link, lstat, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';

const privateFile = 0o600;
const privateFolder = 0o700;
const othersMayEnter = 0o077;

export interface WriteOptions {
  /** Keeps what was there under `<path>.previous`, for a person to go back to; never read by the daemon itself. */
  readonly keepPrevious?: boolean;
  /** Default: its owner alone reads it. */
  readonly mode?: number;
  /** Called when the new content is durable beside the file and the file is still the old one. */
  readonly beforeRename?: () => void;
}

/** Replaces `path`; when it returns, the content survives a power cut. */
export async function writeDurably(path: string, content: string | Uint8Array, options: WriteOptions = {}): Promise<void> {
  const temporary = temporaryBeside(path);
  try {
    await writeSynced(temporary, content, options.mode);
    if (options.keepPrevious === true) await keepPrevious(path);
    options.beforeRename?.();
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Writes a file that must not exist yet. @throws CONFLICT when it does */
export async function createDurably(path: string, content: string | Uint8Array): Promise<void> {
  const temporary = temporaryBeside(path);
  try {
    await writeSynced(temporary, content);
    await link(temporary, path);
  } catch (error) {
    if (hasErrno(error, 'EEXIST'))
      throw new ControlError('CONFLICT', `${path} exists already`, { cause: error, details: { reason: 'file-exists' } });
    throw error;
  } finally {
    await rm(temporary, { force: true });
  }
  await syncFolder(dirname(path));
}

const temporaryBeside = (path: string): string => join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`);

async function writeSynced(path: string, content: string | Uint8Array, mode = privateFile): Promise<void> {
  const file = await open(path, 'wx', privateFile);
  try {
    await file.writeFile(content);
    // Whatever the umask of this process is.
    await file.chmod(mode);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function keepPrevious(path: string): Promise<void> {
  const spare = temporaryBeside(path);
  try {
    await link(path, spare);
    await rename(spare, `${path}.previous`);
  } catch (error) {
    await rm(spare, { force: true });
    if (!hasErrno(error, 'ENOENT')) throw error;
  }
}

export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** undefined when there is no such file. @throws INVALID_STATE when it is no regular file or larger than the bound */
export async function readIfPresent(path: string, maxBytes: number): Promise<Buffer | undefined> {
  try {
    const facts = await stat(path);
    if (!facts.isFile()) throw new ControlError('INVALID_STATE', `${path} is not a regular file`, { details: { reason: 'not-a-file' } });
    if (facts.size > maxBytes) {
      throw new ControlError('INVALID_STATE', `${path} has ${facts.size} bytes, more than the ${maxBytes} it can have`, {
        details: { reason: 'file-too-large' },
      });
    }
    return await readFile(path);
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/**
 * Makes the data folder, for this user alone. A folder that others can enter and that holds something already is refused: its
 * key may have been read.
 *
 * @throws INVALID_STATE when the folder is open to others, or is no folder
 */
export async function openPrivateFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true, mode: privateFolder });
  } catch (error) {
    if (!hasErrno(error, 'EEXIST')) throw error;
  }
  const facts = await stat(path);
  if (!facts.isDirectory()) throw new ControlError('INVALID_STATE', `${path} is not a folder`, { details: { reason: 'not-a-folder' } });
  if ((facts.mode & othersMayEnter) === 0) return;
  if ((await readdir(path)).length > 0) {
    throw new ControlError(
      'INVALID_STATE',
      `data folder ${path} is open to other users (mode ${octal(facts.mode)}): chmod 700 ${path}, and join again if they are not trusted`,
      {
        details: { reason: 'folder-open' },
      },
    );
  }
  await chmod(path, privateFolder);
}

/** @throws INVALID_STATE when others may read or write the file, or it is a link */
export async function assertPrivateFile(path: string): Promise<void> {
  const facts = await lstat(path);
  if (!facts.isFile()) throw new ControlError('INVALID_STATE', `${path} is not a regular file`, { details: { reason: 'not-a-file' } });
  if ((facts.mode & othersMayEnter) !== 0) {
    throw new ControlError(
      'INVALID_STATE',
      `${path} can be read by other users (mode ${octal(facts.mode)}): chmod 600 ${path}, and join again if they are not trusted`,
      {
        details: { reason: 'file-open' },
      },
    );
  }
}

const octal = (mode: number): string => (mode & 0o777).toString(8);

export const hasErrno = (error: unknown, code: string): boolean => error instanceof Error && (error as NodeJS.ErrnoException).code === code;

/** What to say of a file that does not read back: which, why, and that nothing was changed. */
export function damaged(path: string, why: string, cause?: unknown): ControlError {
  return new ControlError('DATA_CORRUPT', `${path} is damaged: ${why}; it was left as it is`, {
    cause,
    details: { reason: 'damaged', path },
  });
}
