/**
 * The server under measurement, in a process of its own: `ours` is the gateway over a store that keeps nothing, `bare` is
 * node:http2 that echoes DATA, with the same TLS. The parent asks by message for memory, CPU time and the longest pause.
 */
import { constants as cryptoConstants } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureServer, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { createGateway } from '../../gateway/gateway.ts';
import type { SessionStore } from '../../gateway/session/store.ts';
import { trustDomain } from '../harness/agent.ts';

export interface ChildConfig {
  readonly mode: 'ours' | 'bare';
  readonly key: string;
  readonly cert: string;
  readonly ca: string;
}

export interface ChildFigures {
  /** Private memory after a collection. */
  readonly memoryBytes: number;
  readonly heapBytes: number;
  readonly cpuMicros: number;
  readonly longestPauseMs: number;
}

/** A database that remembers nothing: what is measured is the gateway. */
const emptyStore: SessionStore = {
  endSessionsOf: async () => undefined,
  openSession: async () => ({ epoch: 1, ackedSeq: 0, identityGeneration: 1 }),
  endSession: async () => undefined,
  touchSessions: async () => ({ ended: [] }),
  readOpenCommands: async () => ({ commands: [], fenced: [] }),
  cancelledAmong: async () => [],
  record: async () => ({ settled: [], fenced: [], unknown: [] }),
  recordProgress: async () => ({ fenced: [] }),
  publishedTrust: async () => null,
  findDesiredState: async () => null,
  findNewerStates: async () => new Map(),
  readAllRevoked: async () => ({ seq: 0, revocations: [] }),
  readRevocationsAfter: async () => ({ seq: 0, revocations: [] }),
};

async function startOurs({ key, cert, ca }: ChildConfig): Promise<number> {
  const services = { join: async (request: Uint8Array) => request, renew: async (request: Uint8Array) => request };
  const gateway = createGateway({
    tls: { key, cert, ca },
    trustDomain,
    gatewayId: 'bench',
    store: emptyStore,
    services,
    timing: { silentForMs: 3_600_000 },
  });
  return (await gateway.listen({ host: '127.0.0.1', port: 0 })).port;
}

function echo(this: ServerHttp2Stream, chunk: Buffer): void {
  this.write(chunk);
}

function startBare({ key, cert, ca }: ChildConfig): Promise<number> {
  const server = createSecureServer({
    key,
    cert,
    ca,
    minVersion: 'TLSv1.3',
    secureOptions: cryptoConstants.SSL_OP_NO_TICKET,
    requestCert: true,
    rejectUnauthorized: false,
  });
  server.on('stream', (stream) => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc+proto' });
    stream.on('data', echo);
    stream.on('error', () => undefined);
  });
  server.on('sessionError', () => undefined);
  return new Promise((resolve) => {
    server.listen({ port: 0, host: '127.0.0.1', backlog: 4_096 }, () => resolve((server.address() as AddressInfo).port));
  });
}

/** RssAnon where the kernel tells it: file pages come and go on their own. */
function privateMemory(): number {
  try {
    const found = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'));
    if (found !== null) return Number(found[1]) * 1_024;
  } catch {
    // Not Linux.
  }
  return process.memoryUsage().rss;
}

const pauses = monitorEventLoopDelay({ resolution: 5 });
pauses.enable();

function figures(): ChildFigures {
  const longestPauseMs = pauses.max / 1e6;
  (globalThis as { gc?: () => void }).gc?.();
  const { user, system } = process.cpuUsage();
  const found = {
    memoryBytes: privateMemory(),
    heapBytes: process.memoryUsage().heapUsed,
    cpuMicros: user + system,
    longestPauseMs,
  };
  // Later: the collection above is itself a pause, and is counted when the timer next fires.
  setTimeout(() => pauses.reset(), 50);
  return found;
}

process.on('message', (message: ChildConfig | 'figures' | 'cpu') => {
  if (message === 'figures') process.send?.(figures());
  else if (message === 'cpu') {
    const { user, system } = process.cpuUsage();
    process.send?.({ cpuMicros: user + system });
  } else void (message.mode === 'ours' ? startOurs(message) : startBare(message)).then((port) => process.send?.({ port }));
});
process.on('disconnect', () => process.exit(0));
