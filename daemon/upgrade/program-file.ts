/**
 * The program's file: fetched beside its place, compared with what was signed, tried, and only then moved there. The one before stays as
 * `<program>.previous`. Whatever moment the machine loses power, there is a whole program in its place.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { access, constants, link, lstat, mkdir, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Release } from '../../domain/commands/release.ts';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { runProgram } from '../kinds/program.ts';
import { openImageSource, sourceTiming } from '../ramdisk/deploy/image-source.ts';
import { hasErrno, syncFolder } from '../state/files.ts';

const executable = 0o755;
/** A program that cannot even say its version by then is none. */
const tryWithinMs = 30 * second;

/** SHA-256 of a file, hex. @throws NOT_FOUND */
export async function fileSha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  try {
    for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `the program ${path} cannot be read`, { cause, details: { reason: 'program' } });
  }
  return hash.digest('hex');
}

/**
 * One file that this process may replace.
 *
 * @throws INVALID_STATE `program-not-a-file` or `program-read-only`
 */
export async function assertReplaceable(program: string): Promise<void> {
  const found = await lstat(program).catch(() => null);
  if (found?.isFile() !== true)
    throw new ControlError(
      'INVALID_STATE',
      `${program} is not a regular file: an upgrade replaces bcd as one file (npm run bcd makes one)`,
      {
        details: { reason: 'program-not-a-file' },
      },
    );
  try {
    await access(dirname(program), constants.W_OK);
  } catch (cause) {
    throw new ControlError(
      'INVALID_STATE',
      `the folder of ${program} is read-only to the daemon: install with daemon install-script --release-key, which lets the unit write there`,
      { cause, details: { reason: 'program-read-only' } },
    );
  }
}

export interface FetchOptions {
  readonly program: string;
  readonly url: string;
  readonly release: Release;
  readonly signal: AbortSignal;
  readonly progress: (done: number, total: number) => void;
}

/**
 * The new program, whole, durable and tried, beside the old one. @returns its path
 * @throws BAD_SIGNATURE `program-differs` when what came is not what was signed; INVALID_STATE `program-fails` when it does not start or
 *   calls itself otherwise; UNAVAILABLE when nothing comes or nothing can be written
 */
export async function fetchProgram(options: FetchOptions): Promise<string> {
  const { program, release, signal } = options;
  const folder = asideOf(program);
  // Under its own name: what node makes of a file goes by its ending.
  const path = join(folder, basename(program));
  try {
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { mode: 0o700 });
    await download(path, options);
    await tryProgram(path, release.version, signal);
    return path;
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    if (hasErrno(error, 'ENOSPC') || hasErrno(error, 'EROFS') || hasErrno(error, 'EACCES'))
      throw new ControlError('UNAVAILABLE', `the new program cannot be written beside ${program}`, {
        cause: error,
        details: { reason: 'program-write' },
      });
    throw error;
  }
}

async function download(path: string, { url, release, signal, progress }: FetchOptions): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    const source = await openImageSource({
      url,
      signal,
      timing: sourceTiming,
      sleep: (ms, until) => sleep(ms, undefined, { signal: until }),
      onResume: () => undefined,
    });
    const hash = createHash('sha256');
    let done = 0;
    for await (const chunk of source.bytes) {
      done += chunk.length;
      if (done > release.bytes) throw differs(url, `more than the ${release.bytes} bytes that were signed`);
      hash.update(chunk);
      await file.write(chunk);
      progress(done, release.bytes);
    }
    if (hash.digest('hex') !== release.sha256) throw differs(url, `${done} bytes with another SHA-256 than was signed`);
    await file.chmod(executable);
    await file.sync();
  } finally {
    await file.close();
  }
}

const differs = (url: string, what: string): ControlError =>
  new ControlError('BAD_SIGNATURE', `what ${url} gave is not the release: ${what}`, { details: { reason: 'program-differs' } });

async function tryProgram(path: string, version: string, signal: AbortSignal): Promise<void> {
  const end = await runProgram(path, ['--version'], AbortSignal.any([signal, AbortSignal.timeout(tryWithinMs)]));
  const said = end.stdout.trim().slice(0, 64);
  if (end.status === 0 && said === version) return;
  const what =
    end.status === 0 ? `calls itself ${JSON.stringify(said)}` : `ends with ${end.status ?? 'a signal'}: ${end.stderr.trim().slice(0, 200)}`;
  throw new ControlError('INVALID_STATE', `the program of release ${version} ${what}; nothing was replaced`, {
    details: { reason: 'program-fails' },
  });
}

/** The new program takes its place; the old one stays beside it. */
export async function putInPlace(program: string, fetched: string): Promise<void> {
  const spare = `${program}.previous.new`;
  await rm(spare, { force: true });
  await link(program, spare);
  await rename(spare, previousOf(program));
  await rename(fetched, program);
  await rm(asideOf(program), { recursive: true, force: true });
  await syncFolder(dirname(program));
}

/** The old program takes its place again. @throws NOT_FOUND when it is gone */
export async function putBack(program: string): Promise<void> {
  const spare = `${program}.back`;
  await rm(spare, { force: true });
  try {
    await link(previousOf(program), spare);
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `there is no ${previousOf(program)} to go back to`, { cause, details: { reason: 'program' } });
  }
  await rename(spare, program);
  await syncFolder(dirname(program));
}

const asideOf = (program: string): string => join(dirname(program), `.${basename(program)}.new`);
const previousOf = (program: string): string => `${program}.previous`;
