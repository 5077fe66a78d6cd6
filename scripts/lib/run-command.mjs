import { spawn } from 'node:child_process';

/**
 * Runs a command to its end without a shell.
 *
 * @param {string} command
 * @param {string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv, input?: string, timeoutMs?: number, show?: boolean, uid?: number, gid?: number }} [options]
 *   `show`: its output goes to our stderr as it comes, and is not kept
 * @returns {Promise<{ code: number, out: string, err: string }>} code 127 when it does not exist, 124 when it took too long
 */
export function runCommand(command, args, { input, timeoutMs, show = false, ...rest } = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { ...rest, stdio: ['pipe', show ? 2 : 'pipe', show ? 2 : 'pipe'] });
    let out = '';
    let err = '';
    let late = false;
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => ((late = true), child.kill('SIGKILL')), timeoutMs);
    child.stdout?.on('data', (data) => (out += data));
    child.stderr?.on('data', (data) => (err += data));
    child.stdin.on('error', () => undefined);
    child.stdin.end(input ?? '');
    child.on('error', (error) => {
      clearTimeout(timer);
      resolve({ code: error.code === 'ENOENT' ? 127 : 126, out, err: err + error.message });
    });
    child.on('close', (code) => {
      clearTimeout(timer);
      resolve({ code: late ? 124 : (code ?? 1), out, err });
    });
  });
}
