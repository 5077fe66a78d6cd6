/** One process of the control plane as an operator's supervisor starts it: its ready line read, its end in the test's hand. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));

export interface Program {
  readonly child: ChildProcess;
  readonly addresses: Readonly<Record<string, string>>;
  /** Resolves with the exit code. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** @param entry `api/main` */
export async function startProgram(entry: string, env: NodeJS.ProcessEnv): Promise<Program> {
  // Inherits what is needed to run at all, and nothing of a deployment around the tests.
  const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(BETTER_COMPUTE_|TEMPORAL_)/.test(name)));
  const child = spawn(process.execPath, ['scripts/run.mjs', entry], {
    cwd: root,
    env: { ...own, BETTER_COMPUTE_READY: 'json', BETTER_COMPUTE_EXIT_WITH_PARENT: '1', ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const ended = new Promise<number | null>((resolve) => void child.once('exit', resolve));
  const line = await Promise.race([
    new Promise<string>((resolve) => void createInterface({ input: child.stdout }).once('line', resolve)),
    ended.then((code) => Promise.reject(new Error(`${entry} ended with ${code}: ${stderr}`))),
  ]);
  return {
    child,
    addresses: (JSON.parse(line) as { addresses: Record<string, string> }).addresses,
    stop(signal = 'SIGTERM') {
      child.kill(signal);
      return ended;
    },
  };
}
