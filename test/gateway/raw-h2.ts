/**
 * A minimal HTTP/2 client on a raw TLS socket: frames by hand, no flow control of its own, header blocks written as plain
 * literals and never read. What it costs is the same whatever serves it, so measurements compare servers; and it does what no
 * library lets a client do (half frames, never reading, floods).
 */
import type { TLSSocket } from 'node:tls';

export const frameTypes = Object.freeze({ data: 0, headers: 1, rst: 3, settings: 4, ping: 6, goaway: 7, windowUpdate: 8, continuation: 9 });

const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const endStreamFlag = 1;
const endHeadersFlag = 4;
const ackFlag = 1;

export interface FrameHead {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
}

export function h2Frame({ type, flags, streamId }: FrameHead, payload: Uint8Array = new Uint8Array()): Buffer {
  const frame = Buffer.allocUnsafe(9 + payload.length);
  frame.writeUIntBE(payload.length, 0, 3);
  frame[3] = type;
  frame[4] = flags;
  frame.writeUInt32BE(streamId, 5);
  frame.set(payload, 9);
  return frame;
}

/** Literal fields without indexing, without Huffman: any decoder takes them and none keeps state. */
export function headerBlock(headers: Readonly<Record<string, string>>): Buffer {
  const parts: Buffer[] = [];
  for (const [name, value] of Object.entries(headers)) parts.push(Buffer.from([0]), literal(name), literal(value));
  return Buffer.concat(parts);
}

function literal(text: string): Buffer {
  const bytes = Buffer.from(text);
  if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  const head = [127];
  let rest = bytes.length - 127;
  while (rest >= 128) {
    head.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  return Buffer.concat([Buffer.from([...head, rest]), bytes]);
}

export function grpcPrefixed(message: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(5 + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, 5);
  return framed;
}

export const sessionHeaders = Object.freeze({
  ':method': 'POST',
  ':scheme': 'https',
  ':path': '/bettercompute.agent.v1.AgentGateway/Session',
  ':authority': 'gw.test',
  'content-type': 'application/grpc+proto',
  te: 'trailers',
});

export interface RawEvents {
  onData?(streamId: number, payload: Buffer): void;
  onEnd?(streamId: number): void;
  onReset?(streamId: number, code: number): void;
  onGoaway?(code: number): void;
  onPing?(): void;
  onClose?(): void;
}

export interface RawOptions {
  /** Answers SETTINGS and PING; default true. */
  readonly isPolite?: boolean;
  /** Gives back flow-control credit for what it reads; default true. */
  readonly givesCredit?: boolean;
}

export class RawConnection {
  readonly socket: TLSSocket;
  readonly counts = { pings: 0, resets: 0, settings: 0 };
  #events: RawEvents;
  readonly #isPolite: boolean;
  readonly #givesCredit: boolean;
  #buffer: Buffer | null = null;
  #isStarted = false;
  #nextStream = 1;
  #uncredited = 0;

  constructor(socket: TLSSocket, events: RawEvents = {}, { isPolite = true, givesCredit = true }: RawOptions = {}) {
    this.socket = socket;
    this.#events = events;
    this.#isPolite = isPolite;
    this.#givesCredit = givesCredit;
    socket.on('data', (chunk: Buffer) => this.#onChunk(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => this.#events.onClose?.());
  }

  set events(events: RawEvents) {
    this.#events = events;
  }

  /** Before it, nothing is answered: the preface is the first thing a client sends. */
  start(): void {
    this.#isStarted = true;
    this.socket.write(Buffer.concat([preface, h2Frame({ type: frameTypes.settings, flags: 0, streamId: 0 })]));
    if (this.#isPolite && this.counts.settings > 0) this.frame({ type: frameTypes.settings, flags: ackFlag, streamId: 0 });
  }

  frame(head: FrameHead, payload?: Uint8Array): void {
    this.socket.write(h2Frame(head, payload));
  }

  /** @returns the new stream's id */
  open(headers: Readonly<Record<string, string>> = sessionHeaders, { endStream = false }: { endStream?: boolean } = {}): number {
    const id = this.#nextStream;
    this.#nextStream += 2;
    this.frame({ type: frameTypes.headers, flags: endHeadersFlag | (endStream ? endStreamFlag : 0), streamId: id }, headerBlock(headers));
    return id;
  }

  data(streamId: number, payload: Uint8Array, endStream = false): void {
    this.frame({ type: frameTypes.data, flags: endStream ? endStreamFlag : 0, streamId }, payload);
  }

  reset(streamId: number, code = 8): void {
    const payload = Buffer.alloc(4);
    payload.writeUInt32BE(code);
    this.frame({ type: frameTypes.rst, flags: 0, streamId }, payload);
  }

  #onChunk(chunk: Buffer): void {
    let bytes = this.#buffer === null ? chunk : Buffer.concat([this.#buffer, chunk]);
    while (bytes.length >= 9) {
      const length = bytes.readUIntBE(0, 3);
      if (bytes.length < 9 + length) break;
      this.#onFrame(
        { type: bytes[3] as number, flags: bytes[4] as number, streamId: bytes.readUInt32BE(5) & 0x7fffffff },
        bytes.subarray(9, 9 + length),
      );
      bytes = bytes.subarray(9 + length);
    }
    this.#buffer = bytes.length === 0 ? null : bytes;
  }

  #onFrame({ type, flags, streamId }: FrameHead, payload: Buffer): void {
    if (type === frameTypes.data) this.#onData(streamId, payload);
    else if (type === frameTypes.ping && (flags & ackFlag) === 0) this.#onPing(payload);
    else if (type === frameTypes.settings && (flags & ackFlag) === 0) {
      this.counts.settings += 1;
      if (this.#isPolite && this.#isStarted) this.frame({ type: frameTypes.settings, flags: ackFlag, streamId: 0 });
    } else if (type === frameTypes.rst) {
      this.counts.resets += 1;
      this.#events.onReset?.(streamId, payload.readUInt32BE(0));
    } else if (type === frameTypes.goaway) this.#events.onGoaway?.(payload.readUInt32BE(4));
    if ((type === frameTypes.data || type === frameTypes.headers) && (flags & endStreamFlag) !== 0) this.#events.onEnd?.(streamId);
  }

  #onPing(payload: Buffer): void {
    this.counts.pings += 1;
    this.#events.onPing?.();
    if (this.#isPolite) this.frame({ type: frameTypes.ping, flags: ackFlag, streamId: 0 }, payload);
  }

  #onData(streamId: number, payload: Buffer): void {
    this.#uncredited += payload.length;
    if (this.#givesCredit && this.#uncredited >= 16_384) {
      const credit = Buffer.alloc(4);
      credit.writeUInt32BE(this.#uncredited);
      this.socket.write(
        Buffer.concat([
          h2Frame({ type: frameTypes.windowUpdate, flags: 0, streamId: 0 }, credit),
          h2Frame({ type: frameTypes.windowUpdate, flags: 0, streamId }, credit),
        ]),
      );
      this.#uncredited = 0;
    }
    this.#events.onData?.(streamId, payload);
  }
}
