/** swtpm, a TPM 2.0 that nobody here wrote, and the programs that speak to it; where one is missing, its tests are skipped. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { eventually } from './eventually.ts';
import { scratchFolder } from './scratch.ts';

const hasProgram = (name: string): boolean => {
  try {
    execFileSync('which', [name], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
};

/** null when it can be used; else what is missing. */
export function swtpmMissing(): string | null {
  if (!hasProgram('swtpm')) return 'swtpm is not installed';
  return hasProgram('tpm2_createek') ? null : 'tpm2-tools is not installed';
}

export interface SoftwareTpm {
  readonly tcti: string;
  /** A program of tpm2-tools at this TPM; what it prints. */
  tool(program: string, ...args: string[]): string;
  /** As a machine's restart does: what is not saved is lost, keys that can be loaded can be loaded again. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

const running = new Set<ChildProcess>();
// Whatever becomes of the tests: no TPM outlives them.
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** A new TPM, with seeds of its own. */
export async function startSwtpm(): Promise<SoftwareTpm> {
  const folder = scratchFolder();
  const state = join(folder, 'state');
  mkdirSync(state);
  const socket = join(folder, 'tpm');
  let child = await launch({ socket, state });
  return {
    tcti: `swtpm:path=${socket}`,
    tool: (program, ...args) =>
      execFileSync(program, ['-T', `swtpm:path=${socket}`, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }),
    async restart() {
      await end(child);
      child = await launch({ socket, state });
    },
    stop: () => end(child),
  };
}

async function launch({ socket, state }: { socket: string; state: string }): Promise<ChildProcess> {
  const at = ['--server', `type=unixio,path=${socket}`, '--ctrl', `type=unixio,path=${socket}.ctrl`, '--tpmstate', `dir=${state}`];
  const child = spawn('swtpm', ['socket', '--tpm2', ...at, '--flags', 'not-need-init,startup-clear'], { stdio: 'ignore' });
  running.add(child);
  child.once('exit', () => running.delete(child));
  await eventually('a TPM that answers', () => existsSync(socket) && isAnswering(`${socket}.ctrl`));
  return child;
}

const isAnswering = (path: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });

function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    child.once('exit', () => resolve());
    child.kill('SIGTERM');
  });
}
