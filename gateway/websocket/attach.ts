/**
 * Sessions over WebSockets on an HTTP server (WS-001, WS-009): GET /v1/session is upgraded, any other upgrade is refused. No extension is
 * agreed on, whatever a client offers (B61). Renewals are renew.ts.
 */
import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { signGatewayProof, webSocketAcceptOf } from '../../pki/handshake/index.ts';
import { webSocketHeaders, webSocketPaths, webSocketSubprotocol } from '../../proto/index.ts';
import { toWireRefusal } from '../grpc/refusals.ts';
import { sessionPeerOf } from '../tls/peer.ts';
import { type ProvenNode, proveNode, readUpgrade } from './handshake.ts';
import { answerHead, refusalHeaders, refuseUpgrade } from './http.ts';
import { createNonceGuard } from './nonces.ts';
import type { GatewayWsOptions } from './options.ts';
import { WebSocketStream, webSocketLimits, webSocketTransport } from './stream.ts';

export interface GatewayWs {
  /** Open WebSockets. */
  readonly size: number;
  /** Called each second: pings, and the end of who does not answer. */
  sweep(): void;
  destroyAll(): void;
}

/** Handshakes that may be under way. */
const mostOpening = 1_024;

export function attachGatewayWs(server: Server, options: GatewayWsOptions): GatewayWs {
  const sockets = new WebSockets(options);
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => sockets.onUpgrade(request, { socket, head }));
  return sockets;
}

class WebSockets implements GatewayWs {
  readonly #options: GatewayWsOptions;
  readonly #open = new Set<WebSocketStream>();
  readonly #nonces = createNonceGuard();
  readonly #transport = webSocketTransport((stream) => void this.#open.delete(stream));
  #opening = 0;

  constructor(options: GatewayWsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#open.size;
  }

  sweep(): void {
    const now = this.#options.scheduler.now();
    for (const stream of this.#open) if (!stream.sweep(now)) stream.destroy();
  }

  destroyAll(): void {
    for (const stream of this.#open) stream.destroy();
  }

  onUpgrade(request: IncomingMessage, { socket, head }: { readonly socket: Duplex; readonly head: Buffer }): void {
    socket.on('error', () => undefined);
    const key = readUpgrade(request.headers);
    if (request.url !== webSocketPaths.session || request.method !== 'GET') return refuseUpgrade(socket, 404, {});
    if (key === null) return refuseUpgrade(socket, 400, { 'sec-websocket-version': '13' });
    if (this.#opening >= mostOpening) return refuseUpgrade(socket, 503, { 'retry-after': '2' });
    this.#opening += 1;
    // What came behind the request is the session's.
    if (head.length > 0) socket.unshift(head);
    // Verifying a peer is dear: one a turn, as on gRPC.
    this.#options.turns.add(() => {
      void this.#openOne(request, { key, socket }).finally(() => {
        this.#opening -= 1;
      });
      return !socket.destroyed;
    });
  }

  /** Never rejects. */
  async #openOne(request: IncomingMessage, { key, socket }: Upgrade): Promise<void> {
    const { scheduler, trustDomain, isRevoked } = this.#options;
    if (socket.destroyed) return;
    try {
      const rules = { anchors: this.#options.anchors(), trustDomain, now: scheduler.now(), isRevoked, nonces: this.#nonces };
      await this.#accept(proveNode(request.headers, rules), { key, socket });
    } catch (error) {
      this.#refuse(socket, error);
    }
  }

  async #accept({ peer, nonce }: ProvenNode, { key, socket }: Upgrade): Promise<void> {
    const { scheduler, trustDomain, random, sessions } = this.#options;
    const statement = { trustDomain, nodeId: peer.identity.nodeId, nonce, timeMs: BigInt(Math.floor(scheduler.now())) };
    const proof = await signGatewayProof(this.#options.serving(), statement);
    if (socket.destroyed) return;
    const answer = answerHead(101, {
      upgrade: 'websocket',
      connection: 'Upgrade',
      'sec-websocket-accept': webSocketAcceptOf(key),
      'sec-websocket-protocol': webSocketSubprotocol,
      [webSocketHeaders.gatewayProof]: proof,
    });
    const firstPingAt = scheduler.now() + webSocketLimits.pingEveryMs * (0.5 + random() / 2);
    const stream = new WebSocketStream(socket, { chain: peer.chain, answer, firstPingAt });
    sessions.accept(stream, sessionPeerOf(peer, socket as Socket), this.#transport);
    this.#open.add(stream);
  }

  #refuse(socket: Duplex, error: unknown): void {
    const { random, metrics, log } = this.#options;
    const wire = toWireRefusal(error, random);
    metrics.refused(wire.reason);
    if (wire.reason === 'internal') log.error({ err: error }, 'a WebSocket failed');
    else log.debug({ reason: wire.reason, err: error }, 'a WebSocket was refused');
    refuseUpgrade(socket, wire.http, refusalHeaders(wire));
  }
}

interface Upgrade {
  /** Of the request. */
  readonly key: string;
  readonly socket: Duplex;
}
