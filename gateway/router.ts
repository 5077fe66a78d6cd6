/**
 * From an HTTP/2 stream to a call: transport checks, the method, who the peer is, and then the handler. Identity is judged
 * for each stream anew (H-11); Join alone needs none (TRN-014).
 */
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { bounds, decodeMessage, ProtocolError, RenewRequestSchema } from '../proto/index.ts';
import type { Connection, ConnectionTable } from './grpc/connections.ts';
import { httpRefusalOf, okTrailers } from './grpc/metadata.ts';
import { refusal, toWireRefusal } from './grpc/refusals.ts';
import { cutStream, endStream, openResponse, refuseHttp, refuseStream } from './grpc/stream.ts';
import { serveUnary } from './grpc/unary.ts';
import type { GatewayLog } from './log.ts';
import type { GatewayMetrics } from './metrics.ts';
import type { RenewLimit } from './renew-limit.ts';
import type { Scheduler } from './scheduler.ts';
import type { GatewayServices } from './services.ts';
import type { Sessions } from './session/sessions.ts';
import type { SessionTransport } from './session/stream.ts';
import { attachStream } from './session/stream-events.ts';
import { withClockTold } from './tls/clock-refusal.ts';
import { type CertificateRef, type Peer, peerChainOf, sessionPeerOf, verifyPeer } from './tls/peer.ts';
import type { TunnelRelay } from './tunnel/relay.ts';
import type { TurnQueue } from './turn-queue.ts';

export interface RouterOptions {
  readonly trustDomain: string;
  readonly services: GatewayServices;
  anchors(): readonly Uint8Array[];
  isRevoked(certificate: CertificateRef): boolean;
  readonly renewLimit: RenewLimit;
  readonly connections: ConnectionTable;
  readonly sessions: Sessions;
  readonly tunnels: TunnelRelay;
  readonly scheduler: Scheduler;
  readonly turns: TurnQueue;
  readonly random: () => number;
  readonly log: GatewayLog;
  readonly metrics: GatewayMetrics;
}

export interface Router {
  onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void;
}

const service = '/bettercompute.agent.v1.AgentGateway';
const callers = '/bettercompute.agent.v1.TunnelGateway';

const requestWithinMs = 10_000;

interface Call {
  readonly stream: ServerHttp2Stream;
  readonly connection: Connection;
}

export function createRouter(options: RouterOptions): Router {
  const { connections, sessions, tunnels } = options;
  const transport = sessionTransport(options);
  const methods: Readonly<Record<string, (call: Call) => void>> = Object.freeze({
    [`${service}/Join`]: (call) => void serve(options, call, { maxBytes: bounds.joinRequest, handle: (request) => join(options, request) }),
    [`${service}/Renew`]: (call) =>
      inItsTurn(options, call, (peer) => {
        void serve(options, call, { maxBytes: bounds.renewRequest, handle: (request) => renew(options, request, peer) });
      }),
    [`${service}/Session`]: (call) =>
      inItsTurn(options, call, (peer) => {
        sessions.accept(call.stream, sessionPeerOf(peer, (call.stream.session as ServerHttp2Session).socket), transport);
        call.connection.begin();
      }),
    [`${service}/Tunnel`]: (call) =>
      inItsTurn(options, call, ({ identity }) => {
        whileOpen(options, call);
        void tunnels.accept(call.stream, identity.nodeId);
      }),
    [`${callers}/Connect`]: (call) => {
      whileOpen(options, call);
      void tunnels.connect(call.stream).then((isSpliced) => {
        if (!isSpliced) connections.countReset(call.connection);
      });
    },
  });
  return {
    onStream(stream, headers) {
      // 'close' follows and says all there is to say.
      stream.on('error', ignore);
      const connection = connections.attach(stream);
      if (connection === null || connection.isCut) return void stream.destroy();
      const http = httpRefusalOf(headers);
      if (http !== null) {
        connections.countReset(connection);
        return refuseHttp(stream, http);
      }
      try {
        const path = headers[':path'] ?? '';
        const method = Object.hasOwn(methods, path) ? methods[path] : undefined;
        if (method === undefined) throw refusal('unknown-method');
        if (isCompressed(headers)) throw refusal('compressed');
        method({ stream, connection });
      } catch (error) {
        refuse(options, { stream, connection }, error);
      }
    },
  };
}

/** Sessions on the streams of this router. */
const sessionTransport = ({ connections, tunnels, scheduler }: RouterOptions): SessionTransport<ServerHttp2Stream> =>
  Object.freeze({
    open(stream, target) {
      openResponse(stream);
      attachStream(stream, target);
    },
    finish: (stream) => endStream(stream, okTrailers),
    refuse: refuseStream,
    cut: cutStream,
    chainOf(stream) {
      const socket = stream.session?.socket;
      if (socket === undefined) throw new Error('the connection is gone');
      return peerChainOf(socket as TLSSocket);
    },
    closed(stream, wasUseful) {
      const connection = connections.find(stream);
      if (connection === null) return;
      tunnels.endOf(connection.session);
      connection.end(scheduler.now());
      if (!wasUseful) connections.countReset(connection);
    },
  } satisfies SessionTransport<ServerHttp2Stream>);

/** The connection is of use for as long as the stream is. */
function whileOpen({ scheduler }: RouterOptions, { stream, connection }: Call): void {
  connection.begin();
  stream.once('close', () => connection.end(scheduler.now()));
}

const ignore = (): void => undefined;

function isCompressed(headers: IncomingHttpHeaders): boolean {
  const encoding = headers['grpc-encoding'];
  return encoding !== undefined && encoding !== 'identity';
}

function refuse({ connections, metrics, random, log }: RouterOptions, { stream, connection }: Call, error: unknown): void {
  const wire = toWireRefusal(error, random);
  metrics.refused(wire.reason);
  if (wire.reason === 'internal') log.error({ err: error }, 'a stream failed');
  else log.debug({ reason: wire.reason, err: error }, 'a stream was refused');
  connections.countReset(connection);
  refuseStream(stream, wire);
}

/**
 * Verifying a peer costs as much as a good part of its handshake: one a turn. A stream that is gone by then was a reset. Its connection
 * is not quiet while it waits for us, or the longer the queue the more of those who stand in it would be cut and dial again.
 */
function inItsTurn(options: RouterOptions, call: Call, accept: (peer: Peer) => void): void {
  const { stream, connection } = call;
  const { connections, scheduler, turns } = options;
  connection.begin();
  const gone = (): void => {
    connection.end(scheduler.now());
    connections.countReset(connection);
  };
  stream.once('close', gone);
  turns.add(() => {
    if (stream.destroyed) return false;
    stream.off('close', gone);
    try {
      accept(peerOf(options, stream));
    } catch (error) {
      refuse(options, call, error);
    }
    connection.end(scheduler.now());
    return true;
  });
}

function peerOf({ anchors, trustDomain, isRevoked, scheduler }: RouterOptions, stream: ServerHttp2Stream): Peer {
  const chain = peerChainOf((stream.session as ServerHttp2Session).socket as TLSSocket);
  const now = scheduler.now();
  try {
    return verifyPeer(chain, { anchors: anchors(), trustDomain, now, isRevoked });
  } catch (error) {
    throw withClockTold(error, now);
  }
}

async function serve(
  options: RouterOptions,
  { stream, connection }: Call,
  call: { readonly maxBytes: number; handle(request: Uint8Array): Promise<Uint8Array> },
): Promise<void> {
  const { scheduler, random, connections } = options;
  let isAnswered = true;
  connection.begin();
  stream.once('close', () => {
    connection.end(scheduler.now());
    if (!isAnswered) connections.countReset(connection);
  });
  await serveUnary(stream, {
    ...call,
    requestWithinMs,
    scheduler,
    random,
    onRefused: (error) => {
      isAnswered = false;
      options.metrics.refused(toWireRefusal(error, random).reason);
      options.log.debug({ err: error }, 'a call was refused');
    },
  });
}

function join({ services, sessions }: RouterOptions, request: Uint8Array): Promise<Uint8Array> {
  if (sessions.isDraining) throw refusal('draining');
  return services.join(request);
}

/** Counted before the relay, after TLS proved the key: an authenticated attempt, whatever the control plane says to it. */
async function renew({ services, renewLimit, scheduler }: RouterOptions, request: Uint8Array, peer: Peer): Promise<Uint8Array> {
  renewLimit.count(peer.identity.nodeId, scheduler.now());
  const leaf = decodeRenew(request).chain[0];
  if (leaf === undefined || !Buffer.from(leaf).equals(peer.chain[0] as Uint8Array)) {
    throw refusal('other-node', { message: "the request's chain is not the one of the connection" });
  }
  return services.renew(request, { chain: peer.chain });
}

function decodeRenew(request: Uint8Array): { readonly chain: readonly Uint8Array[] } {
  try {
    return decodeMessage(RenewRequestSchema, request, 'renewRequest');
  } catch (cause) {
    const isTooLarge = cause instanceof ProtocolError && cause.code === 'FRAME_TOO_LARGE';
    throw refusal(isTooLarge ? 'frame-too-large' : 'undecodable-frame', { cause });
  }
}
