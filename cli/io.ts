/**
 * What a command may touch of the world around it. Commands write data with `out`, talk with `err`, and read the clock and
 * the environment from here, so a test runs them with buffers and a fixed clock.
 */
import { userInfo } from 'node:os';
import { createInterface } from 'node:readline/promises';
import { setTimeout } from 'node:timers/promises';
import { isatty } from 'node:tty';

export interface CliIo {
  /** Data, for pipes and scripts: one line, or several; the line end is added. */
  out(text: string): void;
  /** Talk, for people: progress, warnings, what comes next. The line end is added. */
  err(text: string): void;
  readonly env: NodeJS.ProcessEnv;
  now(): number;
  /** Whether a person reads standard output. */
  readonly isTerminal: boolean;
  /** Ends when the user presses Ctrl-C; long-running commands stop by it. */
  readonly signal: AbortSignal;
  /** The operating-system user: who acts, unless --actor names someone. */
  user(): string;
  /** What a pipe or a file hands in, up to one byte more than `most`; null at a terminal, where a person would be asked. */
  readInput(most: number): Promise<Uint8Array | null>;
  /** Asks a person; false without one (no terminal). */
  confirm(question: string): Promise<boolean>;
  /** Resolves after `ms`, or at once when the user presses Ctrl-C. */
  sleep(ms: number): Promise<void>;
}

async function confirmOnTerminal(question: string, signal: AbortSignal): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return false;
  const dialogue = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await dialogue.question(`${question} [y/N] `, { signal })).trim());
  } catch {
    return false;
  } finally {
    dialogue.close();
  }
}

async function readStandardInput(most: number): Promise<Uint8Array | null> {
  if (process.stdin.isTTY) return null;
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of process.stdin as AsyncIterable<Uint8Array>) {
    parts.push(part);
    size += part.length;
    if (size > most) break;
  }
  return Buffer.concat(parts).subarray(0, most + 1);
}

const line = (text: string): string => (text.endsWith('\n') ? text : `${text}\n`);

/** The io of the real process. */
export function processIo(): CliIo {
  const interrupt = new AbortController();
  process.once('SIGINT', () => interrupt.abort());
  process.once('SIGTERM', () => interrupt.abort());
  // `better-compute … | head` closes the pipe early: that is the reader's choice, not an error of ours.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    throw error;
  });
  return {
    out: (text) => void process.stdout.write(line(text)),
    err: (text) => void process.stderr.write(line(text)),
    env: process.env,
    now: Date.now,
    isTerminal: isatty(1),
    signal: interrupt.signal,
    user: () => userInfo().username,
    readInput: readStandardInput,
    confirm: (question) => confirmOnTerminal(question, interrupt.signal),
    sleep: (ms) => setTimeout(ms, undefined, { signal: interrupt.signal }).catch(() => undefined),
  };
}

/** Pretty JSON for `--json`: what a machine reads is still readable by a person. */
export const writeJson = (io: Pick<CliIo, 'out'>, value: unknown): void => io.out(JSON.stringify(value, jsonSafe, 2));

/** One line of JSON, for commands that stream. */
export const writeJsonLine = (io: Pick<CliIo, 'out'>, value: unknown): void => io.out(JSON.stringify(value, jsonSafe));

const jsonSafe = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? value.toString() : value);
