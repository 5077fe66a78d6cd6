/** `better-compute start` as a person runs it: a process of its own, its lines as they come, and what it leaves behind. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from './eventually.ts';
import { projectRoot } from './imports.ts';
import { scratchFolder } from './scratch.ts';

export interface StartedProgram {
  readonly pid: number;
  /** What it has said to people so far. */
  said(): string;
  /** Resolves with the first line that matches. */
  untilSaid(what: RegExp, withinMs?: number): Promise<string>;
  kill(signal: NodeJS.Signals): void;
  readonly ended: Promise<{ readonly code: number | null; readonly out: string; readonly err: string }>;
}

/** Ports of free choice, so that tests meet no stack of a person. */
export const freePorts = Object.freeze({
  BETTER_COMPUTE_API_PORT: '0',
  BETTER_COMPUTE_GATEWAY_PORT: '0',
  BETTER_COMPUTE_TEMPORAL_PORT: '0',
  BETTER_COMPUTE_TEMPORAL_UI_PORT: '0',
});

/** A state folder that the database's account can pass through. */
export function stateFolder(): string {
  const home = scratchFolder();
  chmodSync(home, 0o711);
  return home;
}

export function runStart(args: readonly string[], env: NodeJS.ProcessEnv): StartedProgram {
  const inherited = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(BETTER_COMPUTE_|TEMPORAL_ADDRESS|npm_)/.test(name)),
  );
  const child: ChildProcess = spawn(process.execPath, ['scripts/run.mjs', 'cli/main', 'start', ...args], {
    cwd: projectRoot,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...inherited, ...env },
  });
  let out = '';
  let err = '';
  child.stdout?.on('data', (data: Buffer) => void (out += data.toString()));
  child.stderr?.on('data', (data: Buffer) => void (err += data.toString()));
  const ended = new Promise<{ code: number | null; out: string; err: string }>((resolve) =>
    child.on('close', (code) => resolve({ code, out, err })),
  );
  return {
    pid: child.pid ?? 0,
    said: () => err,
    untilSaid: (what, withinMs = 240_000) =>
      eventually(
        `a line like ${what}`,
        () => {
          if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}:\n${err}`);
          return err.split('\n').find((line) => what.test(line));
        },
        withinMs,
      ),
    kill: (signal) => void child.kill(signal),
    ended,
  };
}

/** Processes that belong to a state folder, with their whole command lines: it stands there or in their environment. */
export function processesOf(home: string): { pid: number; command: string }[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((name) => {
      const command = readProc(name, 'cmdline');
      const belongs = command.includes(home) || readProc(name, 'environ').includes(home);
      return belongs ? [{ pid: Number(name), command: command.replaceAll('\0', ' ') }] : [];
    });
}

function readProc(pid: string, file: string): string {
  try {
    return readFileSync(join('/proc', pid, file), 'utf8');
  } catch {
    // It ended between the listing and the look.
    return '';
  }
}

export const nothingLeftOf = (home: string): Promise<true> =>
  eventually(`the end of every process of ${home}`, () => processesOf(home).length === 0);
