/** gRPC on HTTP/2 with mutual TLS: the way of every daemon whose network leaves TLS alone. */
import { type ClientHttp2Stream, constants, type IncomingHttpHeaders } from 'node:http2';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { bounds, frameMessage } from '../../proto/index.ts';
import { callGateway, requestHeaders } from './call.ts';
import { refusalOf } from './grpc-status.ts';
import { createMessageCutter } from './message-cutter.ts';
import { dialPinned, type PinnedConnection } from './pinned-connection.ts';
import type { DialContext, GatewayRoute, SessionWire } from './wire.ts';

export class GrpcWire implements SessionWire {
  readonly #stream: ClientHttp2Stream;
  readonly #connection: PinnedConnection;
  #headers: IncomingHttpHeaders | undefined;
  #lost: ControlError | undefined;
  readonly closed: Promise<void>;
  /** GOAWAY: dial anew at once, this stream drains (B23). */
  readonly goingAway: Promise<void>;

  constructor(connection: PinnedConnection) {
    this.#connection = connection;
    this.#stream = connection.session.request(requestHeaders('Session'), { endStream: false });
    this.goingAway = new Promise((resolve) => connection.session.once('goaway', () => resolve()));
    this.closed = new Promise((resolve) => void this.#stream.once('close', () => resolve()));
    const onHeaders = (headers: IncomingHttpHeaders): void => void (this.#headers = { ...this.#headers, ...headers });
    this.#stream.on('response', onHeaders);
    this.#stream.on('trailers', onHeaders);
    this.#stream.on('error', (cause) => {
      this.#lost ??= new ControlError('UNAVAILABLE', 'the session was lost', { cause, details: { reason: 'connection-lost' } });
    });
  }

  get isGone(): boolean {
    return this.#stream.destroyed || this.#lost !== undefined;
  }

  get isWritable(): boolean {
    return !this.isGone && !this.#stream.writableEnded;
  }

  get unsentBytes(): number {
    return this.#stream.writableLength;
  }

  send(message: Uint8Array): void {
    this.#stream.write(frameMessage(message, Buffer.allocUnsafe));
  }

  async *messages(): AsyncIterable<Uint8Array> {
    const cutter = createMessageCutter(bounds.serverFrame);
    for await (const chunk of this.#stream) yield* cutter.push(chunk as Buffer);
    // The gateway's half is over; ours would keep the stream half open for ever (B20).
    if (!this.#stream.destroyed) this.#stream.close(constants.NGHTTP2_NO_ERROR);
  }

  ping(onAnswer: () => void): void {
    if (this.#connection.session.destroyed) return;
    this.#connection.session.ping((error) => {
      if (error === null) onAnswer();
    });
  }

  finish(): void {
    if (this.#stream.destroyed || this.#connection.session.destroyed) return this.destroy();
    const cut = setTimeout(() => this.destroy(), 2 * second);
    cut.unref();
    this.#stream.once('close', () => {
      clearTimeout(cut);
      this.destroy();
    });
    this.#stream.end(() => this.#stream.close(constants.NGHTTP2_NO_ERROR));
  }

  /** The rest of the connection is worth nothing without its one stream. */
  destroy(): void {
    this.#connection.destroy();
  }

  verdict(): ControlError | null {
    return this.#lost ?? refusalOf(this.#headers);
  }

  requestTunnel(): ClientHttp2Stream | undefined {
    const { session } = this.#connection;
    if (this.isGone || session.destroyed || session.closed) return undefined;
    return session.request(requestHeaders('Tunnel'), { endStream: false });
  }
}

function dial({ identity, client, now, timeoutMs, signal }: Omit<DialContext, 'commandRoots'>): Promise<PinnedConnection> {
  const { gatewayUrl, gatewayServerName, servingCaPin } = identity;
  return dialPinned({ gateway: { gatewayUrl, gatewayServerName, servingCaPin }, client, now, timeoutMs, signal });
}

export const grpcRoute: GatewayRoute = Object.freeze({
  shown: ({ gatewayUrl }) => gatewayUrl,
  openSession: async (context) => new GrpcWire(await dial(context)),
  async renew(request, context) {
    const { signal, timeoutMs } = context;
    const connection = await dial(context);
    const giveUp = (): void => connection.destroy();
    signal.addEventListener('abort', giveUp, { once: true });
    if (signal.aborted) giveUp();
    try {
      return await callGateway(connection, { method: 'Renew', request, maxAnswerBytes: bounds.renewResponse, timeoutMs });
    } finally {
      signal.removeEventListener('abort', giveUp);
      connection.destroy();
    }
  },
} satisfies GatewayRoute);
