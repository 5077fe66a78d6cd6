/** A real bcd: its own process, killed by whatever a test does to it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** Runs the build where it is that of the sources: it starts four times as fast. */
const runner = fileURLToPath(new URL('../../scripts/run.mjs', import.meta.url));
const root = fileURLToPath(new URL('../../', import.meta.url));

export interface BcdEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Bcd {
  readonly child: ChildProcess;
  readonly ended: Promise<BcdEnd>;
  /** What it has said on stderr so far. */
  log(): string;
  output(): string;
  stop(signal?: NodeJS.Signals): Promise<BcdEnd>;
}

export interface BcdOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly input?: string;
}

export function startBcd(args: readonly string[], { env = {}, input }: BcdOptions = {}): Bcd {
  const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('BETTER_COMPUTE_')));
  const child = spawn(process.execPath, [runner, 'daemon/main', ...args], {
    cwd: root,
    env: { ...own, BETTER_COMPUTE_EXIT_WITH_PARENT: '1', ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  if (input !== undefined) child.stdin?.end(input);
  const ended = once(child, 'close').then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
    stdout,
    stderr,
  }));
  return {
    child,
    ended,
    log: () => stderr,
    output: () => stdout,
    async stop(signal = 'SIGTERM') {
      child.kill(signal);
      return ended;
    },
  };
}
