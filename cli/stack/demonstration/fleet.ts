/** Real daemons on this machine: joined by tokens, kept running, one of them stopped and continued on purpose. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ControlError } from '../../../domain/errors.ts';
import { minute, second } from '../../../domain/time.ts';
import type { OperatorClient } from '../../api-client.ts';
import { type Child, startChild } from '../child-process.ts';
import { entryOf } from '../entries.ts';
import { daemonEnv } from '../processes.ts';
import type { Stack } from '../stack.ts';

export interface Fleet {
  readonly names: readonly string[];
  /** How many joined anew; the others were found in the state folder. */
  readonly joined: number;
  /** Stops a daemon as a debugger would: its session stays, its answers do not come. The answer lets it go on. */
  stall(name: string): () => void;
  stop(): Promise<void>;
}

export interface FleetOptions {
  readonly stack: Stack;
  readonly api: OperatorClient;
  readonly count: number;
  /** The daemons insist on 24 h between the last use of a root and its end, unless told that this is a demonstration. */
  readonly rootOverlapMs: number;
  readonly say: (line: string) => void;
}

const actor = 'demonstration';
const entry = entryOf('daemon/main');

export async function startFleet({ stack, api, count, rootOverlapMs, say }: FleetOptions): Promise<Fleet> {
  const names = Array.from({ length: count }, (_, i) => `node-${i + 1}`);
  const env = daemonEnv(stack.facts.env);
  const running = new Map<string, Child>();
  let joined = 0;
  const bring = async (name: string): Promise<void> => {
    const folder = join(stack.home.nodes, name);
    if (!existsSync(join(folder, 'identity.json'))) {
      await joinNode({ name, folder, api, env });
      joined += 1;
    }
    const args = ['run', '--data-dir', folder, '--simulate-reboot', '--demonstration-only-root-overlap-ms', String(rootOverlapMs)];
    running.set(
      name,
      await startChild({ name: `bcd ${name}`, entry, args, env, logFile: join(stack.home.logs, `bcd-${name}.log`) }, { say }),
    );
  };
  const stop = async (): Promise<void> => void (await Promise.all([...running.values()].map((child) => child.stop())));
  // Two at a time: each is a node process, and they all compile at once otherwise.
  try {
    for (let first = 0; first < names.length; first += 2) await Promise.all(names.slice(first, first + 2).map(bring));
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    names,
    joined,
    stall: (name) => holdStopped(running.get(name)?.pid() ?? 0),
    stop,
  };
}

/**
 * A stopped process would outlive us: it cannot see that its parent is gone. So a shell of its own holds it, for as long as a
 * pipe from us is open, and lets it go on when the pipe closes, whoever closed it.
 */
function holdStopped(pid: number): () => void {
  if (pid === 0) return () => undefined;
  const script = 'kill -STOP "$1"; cat >/dev/null; kill -CONT "$1"';
  const holder = spawn('sh', ['-c', script, 'sh', String(pid)], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
    env: { PATH: process.env['PATH'] },
  });
  holder.on('error', () => undefined);
  holder.stdin.on('error', () => undefined);
  return () => void holder.stdin.end();
}

/** The join string goes through a pipe: a command line can be read by everyone on the machine. */
export async function joinNode({
  name,
  folder,
  api,
  env,
  as = {},
}: {
  name: string;
  folder: string;
  api: OperatorClient;
  env: Record<string, string>;
  as?: { readonly role?: 'site'; readonly siteId?: string };
}): Promise<void> {
  const { join: joinString } = await api.createToken({ nodeId: name, actor, lifetimeMs: 10 * minute, ...as });
  if (joinString === null)
    throw new ControlError('INVALID_STATE', 'the api does not know its gateway, so it makes no join strings', {
      details: { reason: 'no-gateway-url' },
    });
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const child = spawn(process.execPath, [...entry.args, 'join', '-', '--role', as.role ?? 'node', '--data-dir', folder], {
    stdio: ['pipe', 'ignore', 'pipe'],
    env,
    timeout: 90 * second,
  });
  let told = '';
  child.stderr.on('data', (data: Buffer) => void (told += data.toString()));
  child.stdin.on('error', () => undefined);
  child.stdin.end(joinString);
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  if (code === 0) return;
  const why =
    told
      .split('\n')
      .find((line) => line.startsWith('error: '))
      ?.slice('error: '.length) ?? `exit code ${code}`;
  throw new ControlError('UNAVAILABLE', `bcd join of ${name} failed: ${why}`, { details: { reason: 'join-failed', node: name } });
}

/** Waits until every daemon has a session. */
export async function untilConnected({
  api,
  names,
  signal,
}: {
  api: OperatorClient;
  names: readonly string[];
  signal: AbortSignal;
}): Promise<void> {
  const until = performance.now() + minute;
  for (;;) {
    signal.throwIfAborted();
    const { nodes } = await api.listNodes({ after: '', limit: 200 });
    const missing = names.filter((name) => !nodes.some((node) => node.id === name && node.connected));
    if (missing.length === 0) return;
    if (performance.now() > until) {
      throw new ControlError('UNAVAILABLE', `${missing.join(', ')} did not connect within a minute`, {
        details: { reason: 'not-connected' },
      });
    }
    await new Promise((resolve) => setTimeout(resolve, second / 5));
  }
}
