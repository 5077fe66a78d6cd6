/**
 * One process of ours under the supervisor: started, waited for until it says where it listens, started again when it ends
 * by itself, stopped when asked.
 *
 * Invariants: it gets the environment of its row and nothing else of ours (a gateway never sees the secret); it holds our end of
 * a pipe as its stdin, so it ends when we do, however we do; its log goes to a file of its own.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, renameSync, statSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { createBackoff } from './backoff.ts';
import type { Entry } from './entries.ts';

export interface ChildDefinition {
  readonly name: string;
  readonly entry: Entry;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly logFile: string;
}

export interface Child {
  readonly name: string;
  /** Of the process that runs now; 0 between two. */
  pid(): number;
  /** Resolves when it has ended for good. */
  stop(): Promise<void>;
}

type Say = (line: string) => void;

/**
 * How long a process may take until it is ready. One that is slower, on a machine that does much else, would be ended and begun from
 * nothing for as long as that lasts: a restart that came too late is given twice the time at the next try, up to eight times.
 */
const patienceMs = 60 * second;
const mostPatience = 8;
/** After SIGTERM; its own drain is shorter. */
const stopWithinMs = 25 * second;
const largestLogBytes = 32 * 1024 * 1024;

/**
 * Starts it and waits for its ready line. Later ends of it are told and repaired, not thrown.
 *
 * @throws UNAVAILABLE (or what the process itself said) when it cannot start the first time
 */
export async function startChild(definition: ChildDefinition, { say, onReady, readyWithinMs = patienceMs }: ChildOptions): Promise<Child> {
  turnLog(definition.logFile);
  const state: ChildState = { current: null, stopping: false, finished: Promise.resolve() };
  const first = launch(definition, readyWithinMs);
  state.current = first;
  try {
    await first.ready;
  } catch (error) {
    await end(first);
    throw error;
  }
  onReady?.(first.pid);
  state.finished = keep(definition, state, { say, onReady, readyWithinMs });
  return {
    name: definition.name,
    pid: () => state.current?.pid ?? 0,
    stop: async () => {
      state.stopping = true;
      state.wake?.();
      if (state.current !== null) await end(state.current);
      await state.finished;
    },
  };
}

export interface ChildOptions {
  readonly say: Say;
  readonly onReady?: ((pid: number) => void) | undefined;
  /** Default: a minute. */
  readonly readyWithinMs?: number;
}

interface ChildState {
  current: Launched | null;
  stopping: boolean;
  finished: Promise<void>;
  /** Cuts the wait before a restart. */
  wake?: () => void;
}

interface Launched {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly startedAt: number;
  readonly ready: Promise<void>;
  /** How it ended, for people. */
  readonly ended: Promise<string>;
}

async function keep(
  definition: ChildDefinition,
  state: ChildState,
  { say, onReady, readyWithinMs }: Required<Pick<ChildOptions, 'say' | 'readyWithinMs'>> & Pick<ChildOptions, 'onReady'>,
): Promise<void> {
  const backoff = createBackoff();
  let withinMs = readyWithinMs;
  for (;;) {
    const launched = state.current;
    if (launched === null) return;
    const how = await launched.ended;
    state.current = null;
    if (state.stopping) return;
    const waitMs = backoff.next(performance.now() - launched.startedAt);
    say(`${definition.name} ended by itself (${how}); starting it again in ${waitMs / second} s, its log is ${definition.logFile}`);
    await pause(state, waitMs);
    if (state.stopping) return;
    const next = launch(definition, withinMs);
    state.current = next;
    await next.ready.then(
      () => {
        withinMs = readyWithinMs;
        say(`${definition.name} is back (pid ${next.pid})`);
        onReady?.(next.pid);
      },
      async () => {
        if (isRunning(next) && !state.stopping) {
          say(`${definition.name} was not ready within ${withinMs / second} s; the next try is given more`);
          withinMs = Math.min(2 * withinMs, mostPatience * readyWithinMs);
        }
        await end(next);
      },
    );
  }
}

function pause(state: ChildState, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    state.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

function launch({ name, entry, args, env, logFile }: ChildDefinition, readyWithinMs: number): Launched {
  const log = openSync(logFile, 'a', 0o600);
  const process_ = spawn(process.execPath, [...entry.args, ...args], {
    stdio: ['pipe', 'pipe', log],
    env: { ...env, BETTER_COMPUTE_READY: 'json', BETTER_COMPUTE_EXIT_WITH_PARENT: '1' },
    // A group of its own: Ctrl-C reaches the supervisor alone, which stops everything in order.
    detached: true,
  });
  closeSync(log);
  process_.stdin?.on('error', () => undefined);
  const from = logSize(logFile);
  const ended = new Promise<string>((resolve) => {
    process_.on('error', (error) => resolve(error.message));
    process_.on('close', (code, signal) => resolve(signal === null ? `exit code ${code}` : signal));
  });
  return {
    process: process_,
    pid: process_.pid ?? 0,
    startedAt: performance.now(),
    ended,
    ready: readiness(process_, { name, ended, readyWithinMs, lastWords: () => lastWords(logFile, from) }),
  };
}

interface ReadyOptions {
  readonly name: string;
  readonly ended: Promise<string>;
  readonly readyWithinMs: number;
  readonly lastWords: () => LastWords;
}

async function readiness(child: ChildProcess, { name, ended, readyWithinMs, lastWords: words }: ReadyOptions): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(failure(name, `was not ready within ${readyWithinMs / second} s`, words())), readyWithinMs);
  });
  const gone = ended.then((how) => {
    throw failure(name, `ended while starting (${how})`, words());
  });
  gone.catch(() => undefined);
  try {
    await Promise.race([readyLine(child), gone, late]);
  } finally {
    clearTimeout(timer);
  }
}

function readyLine(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.stdout === null) return;
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line.startsWith('{"ready":true')) resolve();
    });
  });
}

function failure(name: string, what: string, { error, hint }: LastWords): ControlError {
  return new ControlError('UNAVAILABLE', `${name} ${what}${error === null ? '' : `: ${error}`}`, {
    details: { reason: 'process-did-not-start', process: name, ...(hint === null ? {} : { hint }) },
  });
}

/** The two lines a process of ours leaves behind. */
interface LastWords {
  readonly error: string | null;
  readonly hint: string | null;
}

function lastWords(logFile: string, from: number): LastWords {
  const lines = readFileSync(logFile).subarray(from).toString('utf8').split('\n');
  const after = (beginning: string): string | null => lines.findLast((line) => line.startsWith(beginning))?.slice(beginning.length) ?? null;
  return { error: after('error: '), hint: after('hint: ') };
}

const isRunning = ({ process: { exitCode, signalCode } }: Launched): boolean => exitCode === null && signalCode === null;

async function end({ process: child, ended }: Launched): Promise<void> {
  child.kill('SIGTERM');
  child.stdin?.end();
  const cut = setTimeout(() => child.kill('SIGKILL'), stopWithinMs);
  await ended;
  clearTimeout(cut);
}

const logSize = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0;

/** One older log is kept. */
function turnLog(path: string): void {
  if (logSize(path) > largestLogBytes) renameSync(path, `${path}.1`);
}
