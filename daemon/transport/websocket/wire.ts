/** A session's messages on a WebSocket: one binary message a frame; how it ended stands in the close frame. */
import type { Duplex } from 'node:stream';
import { ControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import {
  bounds,
  encodeGrpcMessage,
  parseCloseReason,
  refusedCloseCode,
  type WebSocketEnd,
  WebSocketLink,
  webSocketCloseCodes,
} from '../../../proto/index.ts';
import { refusalOf } from '../grpc-status.ts';
import type { SessionWire } from '../wire.ts';

export class WebSocketWire implements SessionWire {
  readonly #socket: Duplex;
  readonly #link: WebSocketLink;
  readonly #queue: Uint8Array[] = [];
  #wake: () => void = () => undefined;
  #end: WebSocketEnd | undefined;
  #onPong: () => void = () => undefined;
  readonly closed: Promise<void>;
  /** A WebSocket says nothing of the kind: Drain frames do. */
  readonly goingAway: Promise<void> = new Promise(() => undefined);

  /** @param socket after the handshake */
  constructor(socket: Duplex) {
    this.#socket = socket;
    this.#link = new WebSocketLink({
      as: 'client',
      maxMessageBytes: bounds.webSocketMessage,
      takesText: false,
      write: (bytes) => void (socket.destroyed || socket.writableEnded || socket.write(bytes)),
      onMessage: (payload) => void this.#queue.push(payload),
      onPong: () => this.#onPong(),
      onEnd: (end) => {
        this.#end = end;
        socket.end();
        setTimeout(() => socket.destroy(), 2 * second).unref();
      },
    });
    this.closed = new Promise((resolve) => {
      socket.once('close', () => {
        this.#wake();
        resolve();
      });
    });
    socket.on('data', (chunk: Buffer) => {
      this.#link.push(chunk);
      // While one frame is worked on, the peer is held back.
      if (this.#queue.length > 0) socket.pause();
      this.#wake();
    });
    socket.on('end', () => socket.destroy());
    socket.on('error', () => undefined);
  }

  get isGone(): boolean {
    return this.#socket.destroyed;
  }

  get isWritable(): boolean {
    return this.#link.isOpen && !this.#socket.destroyed && !this.#socket.writableEnded;
  }

  get unsentBytes(): number {
    return this.#socket.writableLength;
  }

  send(message: Uint8Array): void {
    this.#link.send(message);
  }

  async *messages(): AsyncIterable<Uint8Array> {
    for (;;) {
      for (let message = this.#queue.shift(); message !== undefined; message = this.#queue.shift()) {
        if (message.length > bounds.serverFrame) throw tooLarge(message.length);
        yield message;
      }
      if (this.isGone || this.#end !== undefined) return;
      const more = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#socket.resume();
      await more;
    }
  }

  ping(onAnswer: () => void): void {
    this.#onPong = onAnswer;
    this.#link.ping();
  }

  finish(): void {
    if (this.#socket.destroyed) return;
    // The gateway answers, or is not waited for.
    setTimeout(() => this.destroy(), 2 * second).unref();
    this.#link.close(webSocketCloseCodes.normal);
    this.#socket.resume();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  verdict(): ControlError | null {
    if (this.#end === undefined) return lost('the session was lost');
    const { code, reason, fault } = this.#end;
    if (fault !== null) return lost(`what came broke the WebSocket protocol: ${fault.message}`);
    if (code === webSocketCloseCodes.normal) return null;
    const told = parseCloseReason(reason);
    if (code === null || code < refusedCloseCode || told === null) return lost(`the session was closed with ${code ?? 'no code'}`);
    return refusalOf({
      'grpc-status': String(code - refusedCloseCode),
      'grpc-message': encodeGrpcMessage(told.message),
      'x-bc-reason': told.reason,
      ...(told.pushbackMs === null ? {} : { 'grpc-retry-pushback-ms': String(told.pushbackMs) }),
    });
  }

  requestTunnel(): undefined {
    return undefined;
  }
}

const lost = (message: string): ControlError => new ControlError('UNAVAILABLE', message, { details: { reason: 'connection-lost' } });

const tooLarge = (length: number): ControlError =>
  new ControlError('FRAME_TOO_LARGE', `the gateway sent a message of ${length} bytes, more than ${bounds.serverFrame}`, {
    details: { reason: 'frame-too-large' },
  });
