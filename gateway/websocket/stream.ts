/**
 * A WebSocket as the stream of a session: one binary message a frame of the protocol, of at most 4 MiB each way (16 MiB is what a message
 * may have at all). How a session ends is told in the close frame: 1000 when all is well, else 4000 and the gRPC status, with
 * `<x-bc-reason> <pushback in ms, or -> <sentence>` as its reason.
 *
 * Threat model: as agent-session.ts says, for what is queued and what is read. Here: a peer that answers no ping is cut after two; one that
 * does not answer the close is cut by the session (B60); pings are answered as long as the queue holds, else the peer is cut.
 */
import { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import { bounds, encodeCloseReason, refusedCloseCode, WebSocketLink, webSocketCloseCodes } from '../../proto/index.ts';
import type { WireRefusal } from '../grpc/refusals.ts';
import { outboundLimits } from '../session/outbound.ts';
import type { SessionStream, SessionTransport } from '../session/stream.ts';
import type { StreamTarget } from '../session/stream-events.ts';

export const webSocketLimits = Object.freeze({ pingEveryMs: 20_000, unansweredPings: 2 });

/** The prefix that frames carry on gRPC: a WebSocket keeps messages apart itself. */
const prefixBytes = 5;

export interface WebSocketStreamOptions {
  readonly chain: readonly Uint8Array[];
  /** The HTTP answer that opens it: the first bytes that go out. */
  readonly answer: string;
  readonly firstPingAt: number;
}

export class WebSocketStream extends EventEmitter implements SessionStream {
  /** What the peer proved itself with. */
  readonly chain: readonly Uint8Array[];
  readonly #answer: string;
  readonly #socket: Duplex;
  readonly #link: WebSocketLink;
  #target: StreamTarget | null = null;
  #nextPingAt: number;
  #unanswered = 0;

  constructor(socket: Duplex, { chain, answer, firstPingAt }: WebSocketStreamOptions) {
    super();
    this.chain = chain;
    this.#answer = answer;
    this.#socket = socket;
    this.#nextPingAt = firstPingAt;
    this.#link = new WebSocketLink({
      as: 'server',
      maxMessageBytes: bounds.webSocketMessage,
      takesText: false,
      write: (bytes) => this.#write(bytes),
      onMessage: (payload) => this.#target?.onWhole(payload),
      onPong: () => {
        this.#unanswered = 0;
      },
      onEnd: () => this.#onEnd(),
    });
  }

  get destroyed(): boolean {
    return this.#socket.destroyed;
  }

  get writableEnded(): boolean {
    return !this.#link.isOpen || this.#socket.writableEnded;
  }

  get writableLength(): number {
    return this.#socket.writableLength;
  }

  /** Answers the handshake; the target hears everything from here on. */
  start(target: StreamTarget): void {
    this.#target = target;
    this.#socket.write(this.#answer);
    this.#socket.on('data', (chunk: Buffer) => this.#link.push(chunk));
    this.#socket.on('drain', () => target.onDrain());
    this.#socket.on('end', () => this.#socket.destroy());
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => {
      target.onClose();
      this.emit('close');
    });
  }

  write(framed: Buffer): void {
    this.#link.send(framed.subarray(prefixBytes));
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Says why; what still comes is read and dropped until the peer answers, or the session's time for that is over. */
  close(code: number, reason: string): void {
    this.#link.close(code, reason);
    this.#socket.resume();
  }

  /** Called each second. @returns false when two pings went unanswered */
  sweep(now: number): boolean {
    if (now < this.#nextPingAt) return true;
    if (this.#unanswered >= webSocketLimits.unansweredPings) return false;
    this.#nextPingAt = now + webSocketLimits.pingEveryMs;
    this.#unanswered += 1;
    this.#link.ping();
    return true;
  }

  #write(bytes: Uint8Array): void {
    if (this.#socket.destroyed || this.#socket.writableEnded) return;
    // Pongs are written whether the session has room or not: a peer that pings and never reads would fill our memory.
    if (this.#socket.writableLength + bytes.length > outboundLimits.budgetBytes + bounds.serverFrame) return this.destroy();
    this.#socket.write(bytes);
  }

  #onEnd(): void {
    this.#target?.onHalfClose();
    // What was written goes out first; a peer that takes none of it is destroyed by the session's own deadline.
    this.#socket.end();
  }
}

/** Sessions on WebSockets. @param onClosed the stream is gone */
export const webSocketTransport = (onClosed: (stream: WebSocketStream) => void): SessionTransport<WebSocketStream> =>
  Object.freeze({
    open: (stream, target) => stream.start(target),
    finish: (stream) => stream.close(webSocketCloseCodes.normal, ''),
    refuse: (stream, { grpc, reason, message, pushbackMs }: WireRefusal) =>
      stream.close(refusedCloseCode + grpc, encodeCloseReason({ reason, pushbackMs, message })),
    cut: (stream) => stream.destroy(),
    chainOf: ({ chain }) => chain,
    closed: onClosed,
  } satisfies SessionTransport<WebSocketStream>);
