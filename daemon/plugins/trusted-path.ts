/**
 * Whom the files of plugins belong to. A plugin runs with bcd's own rights, so whoever may write one of its files, or exchange a folder on
 * the way to it, is bcd. What is trusted is root, and the account that bcd runs as where that is another one.
 *
 * A folder above may be writable for others where it is root's and sticky (/tmp): what lies in it can be moved by its owner alone, and the
 * owner of each step of the way is asked.
 */
import { lstat } from 'node:fs/promises';
import { dirname, isAbsolute, resolve } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { hasErrno } from '../state/files.ts';

export interface PathEntry {
  readonly type: 'file' | 'folder' | 'link' | 'other';
  readonly uid: number;
  readonly mode: number;
}

const othersMayWrite = 0o022;
const sticky = 0o1000;

/** null: it can be trusted. @param wanted `above`: a folder on the way @param ownUid the account of this process */
export function problemOfEntry({ type, uid, mode }: PathEntry, wanted: 'file' | 'folder' | 'above', ownUid: number): string | null {
  if (type === 'link') return 'is a symbolic link: put the thing itself there';
  if (type !== (wanted === 'file' ? 'file' : 'folder')) return `is no ${wanted === 'file' ? 'regular file' : 'folder'}`;
  if (uid !== 0 && uid !== ownUid)
    return `belongs to user ${uid}: chown it to root${ownUid === 0 ? '' : ` or to user ${ownUid}, who runs bcd`}`;
  const isSafelyShared = wanted === 'above' && uid === 0 && (mode & sticky) !== 0;
  if ((mode & othersMayWrite) !== 0 && !isSafelyShared) return `can be written by others (mode ${(mode & 0o7777).toString(8)}): chmod go-w`;
  return null;
}

/** @param ownUid as of problemOfEntry @throws NOT_FOUND; INVALID_STATE naming the first step of the way that cannot be trusted */
export async function assertTrusted(path: string, wanted: 'file' | 'folder', ownUid: number): Promise<void> {
  const last = isAbsolute(path) ? resolve(path) : '';
  if (last !== path) throw untrusted(path, 'is no absolute path without detours');
  for (const step of [...waysTo(path), path]) {
    const problem = problemOfEntry(await entryAt(step), step === path ? wanted : 'above', ownUid);
    if (problem !== null) throw untrusted(step, problem);
  }
}

/** From the root down, without the last. */
function waysTo(path: string): string[] {
  const above = dirname(path);
  return above === path ? [] : [...waysTo(above), above];
}

async function entryAt(path: string): Promise<PathEntry> {
  try {
    const facts = await lstat(path);
    const type = facts.isSymbolicLink() ? 'link' : facts.isFile() ? 'file' : facts.isDirectory() ? 'folder' : 'other';
    return { type, uid: facts.uid, mode: facts.mode };
  } catch (cause) {
    if (!hasErrno(cause, 'ENOENT') && !hasErrno(cause, 'ENOTDIR')) throw cause;
    throw new ControlError('NOT_FOUND', `there is no ${path}`, { cause, details: { reason: 'plugin-files' } });
  }
}

const untrusted = (path: string, problem: string): ControlError<'INVALID_STATE'> =>
  new ControlError('INVALID_STATE', `${path} ${problem}; nothing of it is run`, { details: { reason: 'plugin-untrusted', path } });
