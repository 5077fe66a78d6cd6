/**
 * Whoever started us through npm sees npm's process, not ours: killed, it leaves a shell and us behind. So under npm we watch
 * that process and end in order when it is gone. Started any other way (a shell, nohup, a service) a parent may leave.
 */
import { readFileSync } from 'node:fs';
import { isAlive } from '../../scripts/lib/lock.mjs';

const lookEveryMs = 500;

export interface LauncherWatch {
  close(): void;
}

/** Calls back once npm, if it launched us, is gone. */
export function watchLauncher(env: NodeJS.ProcessEnv, gone: () => void): LauncherWatch {
  if (env['npm_lifecycle_event'] === undefined) return { close: () => undefined };
  const ancestors = [process.ppid, parentOf(process.ppid)].filter((pid): pid is number => pid !== null && pid > 1);
  const timer = setInterval(() => {
    if (ancestors.every(runs)) return;
    clearInterval(timer);
    gone();
  }, lookEveryMs);
  timer.unref();
  return { close: () => clearInterval(timer) };
}

/** null where the system does not tell. */
function parentOf(pid: number): number | null {
  const fields = stat(pid);
  return fields === null ? null : Number(fields[1]);
}

/** A process that ended and was not waited for yet counts as gone. */
function runs(pid: number): boolean {
  return isAlive(pid) && stat(pid)?.[0] !== 'Z';
}

/** State and parent of a process; its name, which may hold anything, is skipped. */
function stat(pid: number): [state: string, parent: string] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state = '', parent = ''] = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return [state, parent];
  } catch {
    return null;
  }
}
