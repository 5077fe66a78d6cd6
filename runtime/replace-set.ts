/**
 * Files that mean something only together, a key and its certificate: replaced as a set.
 *
 * Invariant: whenever the process is cut off, a complete set is on the disk, the new one or the old one: in its place, or in the
 * folder NAME.previous beside it. That folder is there whole or not at all (filled under another name, then renamed), and it goes
 * when the new set stands. A folder that an interrupted run left is kept: it holds the last set that was complete in its place.
 *
 * What it does not do: let a reader see both files change in one instant; readers compare key and certificate (H-12).
 */
import { randomUUID } from 'node:crypto';
import { link, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { ControlError } from '../domain/errors.ts';
import { stageWhole, syncFolder, withFileLock } from './bundle-file-store.ts';

export interface SetFile {
  readonly path: string;
  readonly text: string;
}

/**
 * @param files all in the folder of `name`
 * @param name path whose `.previous` keeps the earlier set meanwhile
 * @throws INVALID_CONFIG when a file cannot be written; then the earlier set stands. CONFLICT while another process replaces it
 */
export async function replaceSet(name: string, files: readonly SetFile[]): Promise<void> {
  // Of two at once, the key of one would stand beside the certificate of the other.
  await withFileLock(name, () => replaceAlone(name, files));
}

async function replaceAlone(name: string, files: readonly SetFile[]): Promise<void> {
  const folder = dirname(name);
  const previous = `${name}.previous`;
  const staged: { temporary: string; path: string }[] = [];
  await sweepUnfinished(previous);
  try {
    for (const { path, text } of files) staged.push({ path, temporary: await stageWhole(path, text) });
    const kept = await keepPrevious(previous, files);
    for (const { temporary, path } of staged) await rename(temporary, path).catch(cannotReplace(path));
    await syncFolder(folder);
    if (kept) await dropPrevious(previous);
  } finally {
    for (const { temporary } of staged) await rm(temporary, { force: true });
  }
}

/** Folders of a run that was killed while it filled or emptied one. The lock is held: they are nobody's any more. */
async function sweepUnfinished(previous: string): Promise<void> {
  const [folder, start] = [dirname(previous), `${basename(previous)}.`];
  const left = (await readdir(folder).catch(() => [])).filter((name) => name.startsWith(start) && name.endsWith('.tmp'));
  for (const name of left) await rm(join(folder, name), { recursive: true, force: true });
}

/** @returns false when there was no complete set to keep */
async function keepPrevious(previous: string, files: readonly SetFile[]): Promise<boolean> {
  if (await exists(previous)) return true;
  const present = await Promise.all(files.map(({ path }) => exists(path)));
  if (!present.every(Boolean)) return false;
  const filling = `${previous}.${randomUUID()}.tmp`;
  try {
    await mkdir(filling, { mode: 0o700 });
    for (const { path } of files) await link(path, join(filling, basename(path))).catch(cannotReplace(path));
    await syncFolder(filling);
    await rename(filling, previous);
    await syncFolder(dirname(previous));
    return true;
  } finally {
    await rm(filling, { recursive: true, force: true });
  }
}

/** Renamed first, so that nobody takes half a set for a whole one. */
async function dropPrevious(previous: string): Promise<void> {
  const going = `${previous}.${randomUUID()}.tmp`;
  await rename(previous, going);
  await rm(going, { recursive: true, force: true });
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

const cannotReplace =
  (path: string) =>
  (cause: NodeJS.ErrnoException): never => {
    throw new ControlError('INVALID_CONFIG', `${path} cannot be written (${cause.code ?? 'unknown fault'})`, {
      cause,
      details: { reason: 'not-writable', path },
    });
  };
