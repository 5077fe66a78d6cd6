/** The load side of the gateway's measurements: one raw client for every server, and the children it is pointed at. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { AgentFrameSchema, encodeMessage } from '../../proto/index.ts';
import { gatewayNodeFlags } from '../../runtime/node-flags.ts';
import { grpcPrefixed, RawConnection } from '../gateway/raw-h2.ts';
import { createAuthorities, dialTls, helloFrame, hostLeaf, nodeCaPem, nodeLeaf, type TestLeaf } from '../harness/agent.ts';
import type { ChildConfig, ChildFigures } from './gateway-child.ts';

export interface Figure {
  readonly figure: string;
  readonly ratio: number;
  readonly measured?: string;
  readonly goal: string;
  readonly holds: boolean;
  readonly detail: Readonly<Record<string, number | string>>;
}

const extension = import.meta.url.endsWith('.ts') ? '.ts' : '.js';
const childPath = fileURLToPath(new URL(`./gateway-child${extension}`, import.meta.url));

export interface Certificates {
  readonly config: Omit<ChildConfig, 'mode'>;
  readonly leaves: readonly TestLeaf[];
}

/** One leaf per session: the gateway keeps one session per node. */
export async function createCertificates(count: number): Promise<Certificates> {
  const authorities = await createAuthorities();
  const serving = await hostLeaf(authorities, 'gateway');
  const leaves: TestLeaf[] = [];
  for (let at = 0; at < count; at += 1) leaves.push(await nodeLeaf(authorities, `node-${at}`));
  return { config: { key: serving.keyPem, cert: serving.chainPem, ca: nodeCaPem(authorities) }, leaves };
}

export class BenchServer {
  readonly #child: ChildProcess;
  readonly port: number;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.port = port;
  }

  static async start(config: ChildConfig): Promise<BenchServer> {
    const nodeFlags = config.mode === 'ours' ? gatewayNodeFlags : [];
    const execArgv = [...nodeFlags, '--expose-gc', ...(extension === '.ts' ? ['--import', 'tsx'] : [])];
    const child = fork(childPath, [], { execArgv, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    child.send(config);
    const ended = once(child, 'exit').then(([code]) => Promise.reject(new Error(`the server under measurement ended with ${code}`)));
    const [{ port }] = (await Promise.race([once(child, 'message'), ended])) as [{ port: number }];
    ended.catch(() => undefined);
    return new BenchServer(child, port);
  }

  async figures(): Promise<ChildFigures> {
    this.#child.send('figures');
    return ((await once(this.#child, 'message')) as [ChildFigures])[0];
  }

  async cpuMicros(): Promise<number> {
    this.#child.send('cpu');
    return ((await once(this.#child, 'message')) as [{ cpuMicros: number }])[0].cpuMicros;
  }

  async stop(): Promise<void> {
    this.#child.disconnect();
    await once(this.#child, 'exit');
  }
}

export const helloBytes = grpcPrefixed(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame'));
export const heartbeatBytes = grpcPrefixed(
  encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 1_000n, timeMs: 1_800_000_000_000n } } }, 'agentFrame'),
);

export interface LoadSession {
  readonly connection: RawConnection;
  readonly stream: number;
  /** Called for each DATA frame after the first answer. */
  onAnswer: (() => void) | null;
}

/** Opens one session and resolves at its first answer: Welcome, or the echo of Hello. */
export function openSession(port: number, leaf: TestLeaf): Promise<LoadSession> {
  return new Promise((resolve, reject) => {
    const socket = dialTls({ port, leaf });
    socket.once('error', reject);
    socket.once('secureConnect', () => {
      socket.setNoDelay(true);
      const connection = new RawConnection(socket);
      connection.start();
      const stream = connection.open();
      const session: LoadSession = { connection, stream, onAnswer: null };
      let isOpen = false;
      connection.events = {
        onData: () => {
          if (isOpen) return session.onAnswer?.();
          isOpen = true;
          resolve(session);
        },
        onClose: () => reject(new Error('the session was closed')),
      };
      connection.data(stream, helloBytes);
    });
  });
}

export interface OpenMany {
  readonly count: number;
  readonly leaves: readonly TestLeaf[];
  /** Handshakes at a time; default 32. */
  readonly atATime?: number;
}

/** Opens many; one that is turned away dials again a little later, as a daemon does. */
export async function openSessions(port: number, { count, leaves: certificates, atATime = 32 }: OpenMany): Promise<LoadSession[]> {
  const sessions: LoadSession[] = [];
  let started = 0;
  const worker = async (): Promise<void> => {
    while (started < count) {
      const leaf = certificates[started % certificates.length] as TestLeaf;
      started += 1;
      sessions.push(await openUntilItHolds(port, leaf));
    }
  };
  await Promise.all(Array.from({ length: Math.min(atATime, count) }, worker));
  return sessions;
}

async function openUntilItHolds(port: number, leaf: TestLeaf): Promise<LoadSession> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await openSession(port, leaf);
    } catch (error) {
      if (attempt === 20) throw error;
      await pause(100 + Math.random() * 400);
    }
  }
}

export function closeSessions(sessions: readonly LoadSession[]): void {
  for (const { connection } of sessions) connection.socket.destroy();
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms));

export const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

export const percentile = (values: readonly number[], of: number): number => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * of) / 100))] ?? 0;
};
