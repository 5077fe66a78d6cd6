/**
 * The gateway: terminates the daemons' TLS, keeps their sessions, delivers commands from the log, brings back what they
 * answer, and relays Join and Renew to the control plane.
 *
 * It holds its own serving key and public keys, nothing else: it cannot sign a command, issue a certificate or change a
 * trust bundle, and what it relays is signed end to end (TRN-004). A gateway that is taken over can delay and drop; it
 * cannot make a machine do anything.
 *
 * Order of a start: revocations are loaded, the sessions of an earlier life are ended, the listener opens. Order of an end:
 * Drain frames, the window, refusals for what stayed, GOAWAY, the last writes.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import type { AddressInfo, Server } from 'node:net';
import type { Client } from 'pg';
import { ControlError } from '../domain/errors.ts';
import type { DatabaseListener } from '../drizzle/listener.ts';
import { isProtocolRange, PROTOCOL_VERSION, type ProtocolRange } from '../proto/index.ts';
import { createRevocationFeed, createSpecFeed, followDatabase } from './feeds.ts';
import { ConnectionTable } from './grpc/connections.ts';
import { type GatewayLog, noLog } from './log.ts';
import { type GatewayMetrics, noMetrics } from './metrics.ts';
import { RenewLimit } from './renew-limit.ts';
import type { RevocationFeed } from './revocation/feed.ts';
import { createRouter, type Router } from './router.ts';
import { createSystemScheduler, type Scheduler } from './scheduler.ts';
import type { GatewayServices } from './services.ts';
import { BrokerRelay } from './session/broker-relay.ts';
import type { SessionTiming } from './session/contract.ts';
import { Sessions } from './session/sessions.ts';
import type { SpecFeed } from './session/spec-feed.ts';
import type { PublishedTrust, SessionStore } from './session/store.ts';
import { createDaemonListener, type DaemonListener, type ListenerOptions } from './tls/listener.ts';
import type { TlsMaterial } from './tls/material.ts';
import type { CertificateRef } from './tls/peer.ts';
import { TunnelRelay } from './tunnel/relay.ts';
import { TurnQueue } from './turn-queue.ts';
import { serveGatewayWs, type WsListener } from './websocket/serve.ts';

export interface GatewayOptions {
  readonly tls: TlsMaterial;
  readonly tlsOptions?: ListenerOptions['tlsOptions'];
  readonly trustDomain: string;
  readonly gatewayId: string;
  readonly store: SessionStore;
  /** Without it nothing pokes, and the poll alone delivers. */
  readonly connectListener?: () => Promise<Client>;
  readonly services: GatewayServices;
  readonly log?: GatewayLog;
  readonly metrics?: GatewayMetrics;
  readonly scheduler?: Scheduler;
  readonly random?: () => number;
  readonly protocol?: ProtocolRange;
  readonly timing?: Partial<SessionTiming>;
  readonly handshakesAtATime?: number;
  /** A new trust bundle is handed out from now on. */
  onTrust?(trust: PublishedTrust): void;
}

export interface DrainOptions {
  /** Over which the daemons leave; default 10 s. */
  readonly windowMs?: number;
  /** After which those that stayed are ended; default the window and 5 s. */
  readonly endAfterMs?: number;
  readonly reason?: string;
}

export interface Gateway {
  listen(at: { readonly host: string; readonly port: number }): Promise<AddressInfo>;
  /** Opens the WebSocket listener beside the other, once that listens (WS-001). */
  listenWebSocket(at: { readonly host: string; readonly port: number }): Promise<AddressInfo>;
  readonly webSocketAddress: AddressInfo | null;
  readonly address: AddressInfo | null;
  readonly sessions: Sessions;
  readonly revocations: RevocationFeed;
  readonly connections: ConnectionTable;
  setTls(material: TlsMaterial): void;
  /** null when it can do its work, else what is wrong. */
  notReady(): string | null;
  drain(options?: DrainOptions): Promise<void>;
  /** Drains without waiting: everything is told, ended and written. */
  close(): Promise<void>;
}

const defaultTiming: SessionTiming = Object.freeze({
  helloWithinMs: 10_000,
  heartbeatIntervalMs: 15_000,
  silentForMs: 50_000,
  reconnectWindowMs: 10_000,
});

/** What a gateway of this version can do, told in Welcome. */
const capabilities = Object.freeze(['delivery.cursor', 'trust.midsession', 'drain.slots']);

const pollPause = Object.freeze({ minMs: 1_000, maxMs: 2_000 });
/** Desired state changes rarely, and a lost notification of it may cost a minute. */
const specPause = Object.freeze({ minMs: 30_000, maxMs: 60_000 });

/** @throws INVALID_CONFIG for a protocol range that is none (SKEW-021), or a TLS set that does not fit together */
export function createGateway(options: GatewayOptions): Gateway {
  const protocol = options.protocol ?? PROTOCOL_VERSION;
  if (!isProtocolRange(protocol)) {
    throw new ControlError('INVALID_CONFIG', `protocol range ${protocol.min}..${protocol.max} is not 1 <= min <= max in whole numbers`, {
      details: { reason: 'protocol-range' },
    });
  }
  const parts = assemble(options, protocol);
  const { listener, sessions, revocations, connections, webSocket } = parts;
  const timers: (() => void)[] = [];
  let finished: Promise<void> | null = null;
  const finish = (): Promise<void> => (finished ??= finishAll(parts, timers));
  const stopAccepting = (): void => {
    listener.stopAccepting();
    webSocket.stopAccepting();
  };
  return {
    sessions,
    revocations,
    connections,
    get address() {
      return listener.address;
    },
    async listen(at) {
      await revocations.start();
      await options.store.endSessionsOf(options.gatewayId);
      await sessions.refreshTrust();
      await bind(listener.server, at);
      timers.push(...startTimers(parts));
      parts.notifications?.start();
      return listener.address as AddressInfo;
    },
    async listenWebSocket(at) {
      await bind(webSocket.server, at);
      return webSocket.address as AddressInfo;
    },
    get webSocketAddress() {
      return webSocket.address;
    },
    setTls(material) {
      listener.setTls(material);
      webSocket.setTls(material);
    },
    notReady: () => notReady(parts),
    async drain({ windowMs = 10_000, endAfterMs = windowMs + 5_000, reason = 'shutdown' } = {}) {
      stopAccepting();
      sessions.startDrain(windowMs, reason);
      await waitUntilEmpty(sessions, { scheduler: parts.scheduler, endAfterMs });
      await finish();
    },
    async close() {
      stopAccepting();
      sessions.startDrain(defaultTiming.reconnectWindowMs, 'shutdown');
      await finish();
    },
  };
}

/** Everything is told, ended and written, in this order. */
async function finishAll(parts: Parts, timers: (() => void)[]): Promise<void> {
  const { sessions, revocations, connections, webSocket } = parts;
  parts.tunnels.endAll();
  sessions.endAll();
  connections.goaway();
  await sessions.flush();
  await turnsUntil(() => false, 5);
  for (const cancel of timers.splice(0)) cancel();
  connections.destroyAll();
  webSocket.destroyAll();
  await turnsUntil(() => connections.size === 0 && webSocket.size === 0, 1_000);
  await sessions.flush();
  sessions.close();
  revocations.close();
  await parts.notifications?.close();
}

interface Parts {
  readonly scheduler: Scheduler;
  readonly listener: DaemonListener;
  readonly sessions: Sessions;
  readonly tunnels: TunnelRelay;
  readonly revocations: RevocationFeed;
  readonly specs: SpecFeed;
  readonly connections: ConnectionTable;
  readonly webSocket: WsListener;
  readonly notifications: DatabaseListener | null;
}

function assemble(options: GatewayOptions, protocol: ProtocolRange): Parts {
  const { store, log = noLog, metrics = noMetrics, scheduler = createSystemScheduler(), random = Math.random } = options;
  const connections = new ConnectionTable({ scheduler, random, onCut: (why) => metrics.connectionCut(why) });
  const sessions = new Sessions({
    store,
    terms: { gatewayId: options.gatewayId, protocol, capabilities, timing: { ...defaultTiming, ...options.timing } },
    scheduler,
    random,
    log,
    metrics,
    brokers: new BrokerRelay(options.services, log),
    ...(options.onTrust === undefined ? {} : { onTrust: options.onTrust }),
  });
  const revocations = createRevocationFeed(sessions, { store, scheduler, log, metrics });
  const specs = createSpecFeed(sessions, { store, log, metrics });
  const turns = new TurnQueue();
  const tunnels = new TunnelRelay({ sessions, store, scheduler, random, log, metrics });
  const around = {
    trustDomain: options.trustDomain,
    services: options.services,
    anchors: () => listener.anchors,
    isRevoked: (certificate: CertificateRef) => revocations.isRevoked(certificate),
    renewLimit: new RenewLimit(),
    sessions,
    scheduler,
    turns,
    random,
    log,
    metrics,
  };
  const router: Router = createRouter({ ...around, connections, tunnels });
  const { tls, tlsOptions, handshakesAtATime } = options;
  const listening = {
    tls,
    scheduler,
    turns,
    ...(tlsOptions === undefined ? {} : { tlsOptions }),
    ...(handshakesAtATime === undefined ? {} : { handshakesAtATime }),
  };
  const listener = createDaemonListener({
    ...listening,
    onSession: (session, socket) => void connections.add(session, socket),
    onSessionClosed: (session) => connections.remove(session),
    onStream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => router.onStream(stream, headers),
  });
  const webSocket = serveGatewayWs({ ...around, ...listening });
  return {
    scheduler,
    listener,
    sessions,
    tunnels,
    revocations,
    specs,
    connections,
    webSocket,
    notifications: followDatabase(options, { scheduler, sessions, revocations, specs, log, metrics }),
  };
}

/** The poll finds everything that no poke told of (B65). */
function startTimers({ scheduler, sessions, specs, connections, webSocket }: Parts): (() => void)[] {
  return [
    scheduler.every({ minMs: 1_000, maxMs: 1_000 }, () => {
      connections.sweep();
      webSocket.sweep();
      sessions.sweep();
    }),
    scheduler.every(pollPause, () => sessions.poke('sweep')),
    scheduler.every(specPause, () => specs.look('sweep')),
    scheduler.every({ minMs: 900, maxMs: 1_100 }, () => void sessions.refreshTrust()),
  ];
}

function notReady({ listener, sessions }: Parts): string | null {
  if (listener.address === null) return 'the listener is closed';
  if (sessions.isDraining) return 'draining';
  return sessions.database.isRefusing ? `the database is away for ${Math.round(sessions.database.awayForMs / 1_000)} s` : null;
}

function bind(server: Server, at: { readonly host: string; readonly port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ ...at, backlog: 4_096 }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** Looks each 100 ms whether the last session has left. */
function waitUntilEmpty(
  sessions: Sessions,
  { scheduler, endAfterMs }: { readonly scheduler: Scheduler; readonly endAfterMs: number },
): Promise<void> {
  const until = scheduler.now() + endAfterMs;
  return new Promise((resolve) => {
    const look = (): void => {
      if (sessions.size === 0 || scheduler.now() >= until) resolve();
      else scheduler.after(100, look);
    };
    look();
  });
}

/** Trailers, RST_STREAM and GOAWAY leave, and closed connections are forgotten, in the turns after they were asked to. */
async function turnsUntil(isDone: () => boolean, most: number): Promise<void> {
  for (let turn = 0; turn < most && !isDone(); turn += 1) await new Promise<void>((resolve) => void setImmediate(resolve));
}
