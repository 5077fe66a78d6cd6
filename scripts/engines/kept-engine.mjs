/** The parent's side of keeper.mjs: start an engine, know when it is usable, stop it. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { SetupError } from '../lib/failure.mjs';
import { isAlive } from '../lib/lock.mjs';
import { runCommand } from '../lib/run-command.mjs';

const keeper = fileURLToPath(new URL('./keeper.mjs', import.meta.url));

/**
 * @param {{ name: string, command: string, args: string[], env: Record<string, string>, stopSignal: string, graceMs: number, log: string, uid?: number, gid?: number,
 *   isReady: () => Promise<boolean>, readyWithinMs: number }} options
 * @returns {Promise<{ pid: number, exited: Promise<number>, stop(): Promise<void> }>}
 */
export async function startKept({ name, isReady, readyWithinMs, ...engine }) {
  const child = spawn(process.execPath, [keeper, JSON.stringify(engine)], {
    stdio: ['pipe', 'pipe', 'inherit'],
    detached: true,
    env: engine.env,
  });
  child.stdin.on('error', () => undefined);
  /** @type {{ code: number | null }} */
  const end = { code: null };
  const exited = new Promise((resolve) => child.on('close', (exit) => resolve((end.code = exit ?? 1))));
  const started = new Promise((resolve) => child.stdout.once('data', (data) => resolve(JSON.parse(data).pid)));
  const pid = await Promise.race([started, exited.then(() => 0)]);
  const stop = async () => {
    child.stdin.end();
    await exited;
  };
  const until = Date.now() + readyWithinMs;
  while (end.code === null && !(await isReady())) {
    if (Date.now() > until) {
      await stop();
      throw new SetupError(`${name} was not ready within ${readyWithinMs / 1000} s`, `its log is ${engine.log}:\n${lastLines(engine.log)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  if (end.code !== null)
    throw new SetupError(
      `${name} ended while starting (exit code ${String(end.code)})`,
      `its log is ${engine.log}:\n${lastLines(engine.log)}`,
    );
  return { pid, exited, stop };
}

function lastLines(path, count = 8) {
  try {
    return readFileSync(path, 'utf8')
      .trimEnd()
      .split('\n')
      .slice(-count)
      .map((line) => `  ${line}`)
      .join('\n');
  } catch {
    return '  (no log)';
  }
}

/**
 * Ends an engine that an earlier, killed run left behind. Only when the process of that pid still names `mark` on its command
 * line: pids are used again.
 *
 * @param {{ pid: number, mark: string, signal: NodeJS.Signals, graceMs: number }} left
 */
export async function endLeftOver({ pid, mark, signal, graceMs }) {
  // A dead process that nobody has waited for yet has an empty command line: it counts as gone.
  const runs = async () => Number.isInteger(pid) && pid > 1 && isAlive(pid) && (await commandLine(pid)).includes(mark);
  if (!(await runs())) return false;
  process.kill(pid, signal);
  const until = Date.now() + graceMs;
  while ((await runs()) && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 50));
  if (await runs()) process.kill(pid, 'SIGKILL');
  while (await runs()) await new Promise((resolve) => setTimeout(resolve, 50));
  return true;
}

async function commandLine(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return (await runCommand('ps', ['-o', 'command=', '-p', String(pid)], { timeoutMs: 5_000 })).out;
  }
}
