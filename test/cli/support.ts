/** An io of buffers, ports around it, and a rotation with the workflow's own parsers behind the port. */
import { join } from 'node:path';
import type { Command } from 'commander';
import type { CliIo } from '../../cli/io.ts';
import { createPorts, type Ports } from '../../cli/ports.ts';
import type { RotationPort, RotationRun } from '../../cli/rotation-port.ts';
import { ControlError } from '../../domain/errors.ts';
import {
  parseAbort,
  parseExclude,
  parseForce,
  parsePause,
  parseStart,
  type RotationStatus,
} from '../../workflows/rotate-command-root/messages.ts';
import { bearer, now } from '../api/support.ts';

export interface TestIo extends CliIo {
  stdout(): string;
  stderr(): string;
  json(): unknown;
  readonly slept: number[];
}

export interface TestIoOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** Answers of the person at the terminal; without, nobody is there. */
  readonly answers?: boolean[];
  /** What is piped in; without, a terminal is there instead. */
  readonly input?: string;
  readonly signal?: AbortSignal;
  /** Runs instead of waiting: the world goes on. */
  readonly onSleep?: () => void;
  /** Default: the hour of the deployments in memory, which stands still. */
  readonly clock?: () => number;
}

export function createTestIo({
  env = {},
  answers,
  input,
  signal = new AbortController().signal,
  onSleep,
  clock = () => now,
}: TestIoOptions = {}): TestIo {
  const out: string[] = [];
  const err: string[] = [];
  const slept: number[] = [];
  const line = (text: string): string => (text.endsWith('\n') ? text : `${text}\n`);
  return {
    out: (text) => void out.push(line(text)),
    err: (text) => void err.push(line(text)),
    env,
    now: clock,
    isTerminal: answers !== undefined,
    signal,
    user: () => 'ann',
    readInput: async (most) => (input === undefined ? null : Buffer.from(input).subarray(0, most + 1)),
    confirm: async () => answers?.shift() ?? false,
    sleep: async (ms) => {
      slept.push(ms);
      onSleep?.();
    },
    stdout: () => out.join(''),
    stderr: () => err.join(''),
    json: () => JSON.parse(out.join('')) as unknown,
    slept,
  };
}

/** The environment of a shell that knows one API and nothing else of this machine. */
export const envFor = (url: string, home = join('/nonexistent', 'better-compute')): NodeJS.ProcessEnv => ({
  BETTER_COMPUTE_HOME: home,
  BETTER_COMPUTE_API_URL: url,
  BETTER_COMPUTE_OPERATOR_TOKEN: bearer,
});

export const createTestPorts = (io: TestIo, more: Partial<Ports> = {}): Ports => ({ ...createPorts(io), ...more });

/** Parses one command line with the parser a command is made of, and answers what it would run. */
export async function parseWith<O>(make: (run: (options: O) => Promise<void>) => Command, argv: readonly string[]): Promise<O> {
  let seen: O | undefined;
  const command = make(async (options) => {
    seen = options;
  });
  command
    .exitOverride()
    .allowExcessArguments(false)
    .configureOutput({ writeErr: () => undefined, outputError: () => undefined });
  await command.parseAsync(argv, { from: 'user' });
  if (seen === undefined) throw new Error('the command did not run');
  return seen;
}

export const aStatus = (over: Partial<RotationStatus> = {}): RotationStatus => ({
  rotationId: 'rotation-1',
  phase: 'waiting-fleet',
  since: now - 61_000,
  outcome: null,
  oldRoot: 'a'.repeat(64),
  newRoot: 'b'.repeat(64),
  trustVersion: 2,
  dropOpensAt: null,
  paused: null,
  blocked: null,
  behind: {
    reason: 'nodes-behind',
    message: '1 of 5 connected node(s) have not applied it (node-3 at 1)',
    names: ['node-3'],
    count: 1,
    seenAt: now,
  },
  overrides: [],
  startedBy: 'ann',
  reason: '',
  ...over,
});

export const aRun = (over: Partial<RotationRun> = {}): RotationRun => ({
  workflowId: 'rotate-command-root',
  runId: 'run-1',
  state: 'running',
  startedAt: now - 120_000,
  closedAt: null,
  status: aStatus(),
  waiting: null,
  result: null,
  failure: null,
  ...over,
});

export interface FakeRotation extends RotationPort {
  /** What the next looks see; the last stays. An error is thrown. */
  runs: (RotationRun | Error)[];
  readonly messages: [string, unknown][];
  closed: number;
}

/** Refuses what the workflow's validators refuse, because it asks them. */
export function createFakeRotation(runs: (RotationRun | Error)[] = []): FakeRotation {
  const messages: [string, unknown][] = [];
  const status = (): RotationStatus => {
    const [run] = rotation.runs;
    if (run === undefined || run instanceof Error || run.state !== 'running') {
      throw new ControlError('NOT_FOUND', 'the rotation is not running', { details: { reason: 'not-running' } });
    }
    return run.status as RotationStatus;
  };
  const record = (name: string, message: unknown): RotationStatus => {
    const answer = status();
    messages.push([name, message]);
    return answer;
  };
  const rotation: FakeRotation = {
    runs,
    messages,
    closed: 0,
    async start(message) {
      const [run] = rotation.runs;
      if (run !== undefined && !(run instanceof Error) && run.state === 'running') {
        throw new ControlError('INVALID_STATE', 'a rotation is already running', { details: { reason: 'already-running' } });
      }
      messages.push(['start', parseStart(message.reason === '' ? { actor: message.actor } : message)]);
      return { workflowId: 'rotate-command-root', runId: 'run-1' };
    },
    async find() {
      const run = rotation.runs.length > 1 ? rotation.runs.shift() : rotation.runs[0];
      if (run instanceof Error) throw run;
      if (run === undefined)
        throw new ControlError('NOT_FOUND', 'no rotation has been started', { details: { hint: 'better-compute rotation start' } });
      return run;
    },
    force: async (message) => record('force', parseForce(message)),
    exclude: async (message) => record('exclude', parseExclude(message)),
    abort: async (message) => record('abort', parseAbort(message)),
    pause: async (message) => void record('pause', parsePause(message)),
    resume: async (message) => void record('resume', message),
    async close() {
      rotation.closed += 1;
    },
  };
  return rotation;
}
