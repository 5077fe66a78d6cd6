/**
 * Processes that a plugin has left behind. Those of its own group and session are found by their numbers; one that has made itself a daemon
 * is found by what every child of a call has in its environment, the id of the command. A program that takes that out of its environment
 * and leaves its session hides: plugins are the owner's own programs, and this is against mistakes of theirs, not against malice.
 */
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { second } from '../../domain/time.ts';

/** What every process of a call has in its environment. */
export const commandIdVariable = 'BC_COMMAND_ID';

/** @param leader pid of the plugin itself, whose group and session it was; null: not known any more, after a restart of bcd */
export async function processesOf(commandId: string, leader: number | null): Promise<number[]> {
  const mark = `\0${commandIdVariable}=${commandId}\0`;
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const found = await Promise.all(pids.map(async (pid) => ((await isOf(pid, { mark, leader })) ? [pid] : [])));
  return found.flat();
}

async function isOf(pid: number, { mark, leader }: { mark: string; leader: number | null }): Promise<boolean> {
  if (pid === process.pid) return false;
  const stat = await textOf(`/proc/${pid}/stat`);
  // pid (name, which may hold anything) state parent group session …
  const [state, , group, session] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (stat === '' || state === 'Z' || state === 'X') return false;
  if (leader !== null && (Number(group) === leader || Number(session) === leader)) return true;
  return `\0${await textOf(`/proc/${pid}/environ`)}`.includes(mark);
}

/** Empty for a process that has ended or is another account's. */
const textOf = (path: string): Promise<string> => readFile(path, 'latin1').catch(() => '');

/** One that hangs in the kernel is not waited for. */
const patienceMs = 5 * second;

/** Ends them for good, and those that they started meanwhile; they are gone behind this. @returns how many there were */
export async function endProcessesOf(commandId: string, leader: number | null): Promise<number> {
  const ended = new Set<number>();
  const untilMs = Date.now() + patienceMs;
  for (;;) {
    const left = await processesOf(commandId, leader);
    if (left.length === 0 || Date.now() > untilMs) return ended.size;
    for (const pid of left) {
      ended.add(pid);
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It ended by itself.
      }
    }
    await sleep(10);
  }
}
