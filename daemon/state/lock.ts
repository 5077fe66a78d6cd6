/**
 * One bcd per data folder. The lock is the kernel's (flock): it is gone the moment the process is, however it ended, and it
 * holds across containers that share the folder. Node has no flock call, so the small program of util-linux takes it on
 * our open file: the lock belongs to the open file, not to the program that asked for it.
 */
import { spawn } from 'node:child_process';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { hasErrno } from './files.ts';

export interface FolderLock {
  release(): Promise<void>;
}

const taken = 1;

/** @throws CONFLICT when another process holds the folder; UNSUPPORTED where there is no flock program */
export const lockFolder = (path: string): Promise<FolderLock> =>
  lockFile(join(path, 'lock'), {
    waitSeconds: 0,
    held: (holder) =>
      new ControlError('CONFLICT', `data folder ${path} is in use by another bcd${holder}`, {
        details: { reason: 'folder-locked', hint: 'stop that bcd, or name another folder with --data-dir' },
      }),
  });

export interface LockOptions {
  /** 0: it is free now, or never. */
  readonly waitSeconds: number;
  /** What to throw when another process holds it; `holder` is empty, or says which in brackets. */
  readonly held: (holder: string) => ControlError;
}

/** @throws what `held` makes; UNSUPPORTED where there is no flock program */
export async function lockFile(path: string, { waitSeconds, held }: LockOptions): Promise<FolderLock> {
  const file = await open(path, 'a+', 0o600);
  try {
    const status = await flock(file, waitSeconds);
    if (status === taken) {
      const holder = (await file.readFile('utf8')).trim();
      throw held(holder === '' ? '' : ` (${holder})`);
    }
    if (status !== 0)
      throw new ControlError('UNAVAILABLE', `flock on ${path} ended with status ${status}`, { details: { reason: 'lock-failed' } });
    await file.truncate(0);
    await file.write(`pid ${process.pid}\n`);
  } catch (error) {
    await file.close();
    throw error;
  }
  return { release: () => file.close() };
}

function flock(file: FileHandle, waitSeconds: number): Promise<number | null> {
  const patience = waitSeconds === 0 ? ['--nonblock'] : ['--timeout', String(waitSeconds)];
  return new Promise((resolve, reject) => {
    const program = spawn('flock', ['--exclusive', ...patience, '3'], { stdio: ['ignore', 'ignore', 'ignore', file.fd] });
    program.once('error', (cause) =>
      reject(
        hasErrno(cause, 'ENOENT')
          ? new ControlError('UNSUPPORTED', 'there is no flock program (util-linux), which keeps two bcd out of one data folder', {
              cause,
              details: { reason: 'no-flock' },
            })
          : cause,
      ),
    );
    program.once('exit', resolve);
  });
}
