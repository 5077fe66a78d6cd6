/**
 * Frames of the WebSocket protocol (RFC 6455), without extensions: bytes → events, and events → bytes. No socket and no clock; both
 * ends use it, and what they may send one another is decided above (link.ts).
 *
 * Threat model: a peer that sends anything in pieces of any size. Nothing is kept beyond one message and the header of the next
 * frame; the bound counts across fragments and is judged by a header, before a byte of its payload is kept; pieces go into one
 * growing buffer, so a message of single bytes costs what its bytes cost; text is judged as it comes.
 */

export const webSocketOpcodes = Object.freeze({ continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 });

export const webSocketCloseCodes = Object.freeze({
  normal: 1000,
  goingAway: 1001,
  protocolError: 1002,
  /** A kind of data that this end does not take. */
  unsupported: 1003,
  invalidText: 1007,
  policy: 1008,
  tooBig: 1009,
  internal: 1011,
});

/** Payload of a control frame (5.5). */
const controlBytes = 125;

/** What ends a connection, with the code that the peer is told (7.4). */
export class WebSocketFault extends Error {
  override readonly name = 'WebSocketFault';
  readonly closeCode: number;
  constructor(closeCode: number, message: string) {
    super(message);
    this.closeCode = closeCode;
  }
}

const violation = (message: string): WebSocketFault => new WebSocketFault(webSocketCloseCodes.protocolError, message);

/** Codes that may stand in a close frame (7.4.1, 7.4.2): 1005, 1006 and 1015 only stand for the lack of one. */
export const isCloseCode = (code: number): boolean =>
  (code >= 1000 && code <= 1014 && code !== 1004 && code !== 1005 && code !== 1006) || (code >= 3000 && code <= 4999);

export interface WebSocketSink {
  onMessage(payload: Uint8Array, isText: boolean): void;
  onPing(payload: Uint8Array): void;
  onPong(payload: Uint8Array): void;
  /** @param code null: the frame was empty */
  onClose(code: number | null, reason: string): void;
}

export interface WebSocketReaderOptions {
  /** Frames of a client are masked, those of a server are not (5.1). */
  readonly from: 'client' | 'server';
  readonly maxMessageBytes: number;
  /** Whether text is taken at all; else 1003. */
  readonly takesText: boolean;
}

/** Of one message. More only make work. */
const mostFragments = 16_384;
const longestHeader = 14;
const emptyMask = new Uint8Array(4);

interface Frame {
  readonly isFinal: boolean;
  readonly opcode: number;
  readonly mask: Uint8Array;
  readonly length: number;
}

export class WebSocketReader {
  readonly #options: WebSocketReaderOptions;
  readonly #header = new Uint8Array(longestHeader);
  #headerBytes = 0;
  /** The frame whose payload is being read. */
  #frame: Frame | null = null;
  #payloadBytes = 0;
  readonly #control = new Uint8Array(controlBytes);
  #message: Uint8Array = new Uint8Array(0);
  #messageBytes = 0;
  #fragments = 0;
  /** Of the message that is being read. */
  #kind: number | null = null;
  #text: InstanceType<typeof TextDecoder> | null = null;
  #isOver = false;

  constructor(options: WebSocketReaderOptions) {
    this.#options = options;
  }

  /** @throws WebSocketFault; nothing must be pushed after it, nor after a close frame */
  push(chunk: Uint8Array, sink: WebSocketSink): void {
    let at = 0;
    while (at < chunk.length && !this.#isOver) {
      if (this.#frame === null) {
        this.#header[this.#headerBytes] = chunk[at] as number;
        this.#headerBytes += 1;
        at += 1;
        this.#frame = this.#readHeader();
        if (this.#frame === null) continue;
        this.#headerBytes = 0;
        this.#payloadBytes = 0;
        this.#begin(this.#frame);
      }
      at = this.#take(chunk, at, this.#frame);
      if (this.#payloadBytes === this.#frame.length) this.#end(this.#frame, sink);
    }
  }

  /** null: there is more to come. */
  #readHeader(): Frame | null {
    const [first = 0, second = 0] = this.#header;
    const had = this.#headerBytes;
    const isMasked = second >= 0x80;
    const short = second & 0x7f;
    const opcode = first & 0x0f;
    // Each octet is judged as it comes: what is wrong is known before the rest is there.
    if (had === 1) assertFirst(first);
    if (had === 2) this.#assertSecond(opcode, { isMasked, short });
    const lengthEnd = 2 + extendedBytes(short);
    if (had < lengthEnd + (isMasked ? 4 : 0) || had < 2) return null;
    const mask = isMasked ? this.#header.slice(lengthEnd, lengthEnd + 4) : emptyMask;
    return { isFinal: first >= 0x80, opcode, mask, length: this.#lengthOf(short) };
  }

  #assertSecond(opcode: number, { isMasked, short }: { isMasked: boolean; short: number }): void {
    if (isMasked !== (this.#options.from === 'client'))
      throw violation(isMasked ? 'a server does not mask its frames' : 'a client masks its frames');
    if (opcode >= 8 && short > controlBytes) throw violation(`a control frame carries at most ${controlBytes} bytes`);
  }

  #lengthOf(short: number): number {
    const view = new DataView(this.#header.buffer);
    if (short < 126) return short;
    if (short === 126) {
      const length = view.getUint16(2);
      if (length < 126) throw violation('a length is written in its shortest form');
      return length;
    }
    const length = view.getBigUint64(2);
    if (length >= 1n << 63n) throw violation('the top bit of a length is 0');
    if (length < 65_536n) throw violation('a length is written in its shortest form');
    return length > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(length);
  }

  #begin({ opcode, length }: Frame): void {
    if (opcode >= 8) return;
    if (opcode === webSocketOpcodes.continuation) {
      if (this.#kind === null) throw violation('a continuation of nothing');
    } else {
      if (this.#kind !== null) throw violation('a new message in the middle of another');
      if (opcode === webSocketOpcodes.text && !this.#options.takesText)
        throw new WebSocketFault(webSocketCloseCodes.unsupported, 'messages are binary, not text');
      this.#kind = opcode;
      this.#fragments = 0;
      if (opcode === webSocketOpcodes.text) this.#text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    }
    this.#fragments += 1;
    if (this.#fragments > mostFragments)
      throw new WebSocketFault(webSocketCloseCodes.policy, `a message comes in at most ${mostFragments} fragments`);
    const { maxMessageBytes } = this.#options;
    if (this.#messageBytes + length > maxMessageBytes)
      throw new WebSocketFault(webSocketCloseCodes.tooBig, `a message has at most ${maxMessageBytes} bytes`);
  }

  /** @returns where the next frame, or nothing, begins */
  #take(chunk: Uint8Array, from: number, { opcode, mask, length }: Frame): number {
    const count = Math.min(chunk.length - from, length - this.#payloadBytes);
    const isControl = opcode >= 8;
    const target = isControl ? this.#control : this.#room(count);
    const to = isControl ? this.#payloadBytes : this.#messageBytes;
    if (mask === emptyMask) target.set(chunk.subarray(from, from + count), to);
    else for (let i = 0; i < count; i += 1) target[to + i] = (chunk[from + i] as number) ^ (mask[(this.#payloadBytes + i) & 3] as number);
    this.#payloadBytes += count;
    if (!isControl) {
      this.#messageBytes += count;
      this.#judgeText(target.subarray(to, to + count), false);
    }
    return from + count;
  }

  #room(count: number): Uint8Array {
    const needed = this.#messageBytes + count;
    if (this.#message.length >= needed) return this.#message;
    const grown = new Uint8Array(Math.min(this.#options.maxMessageBytes, Math.max(needed, this.#message.length * 2)));
    grown.set(this.#message.subarray(0, this.#messageBytes));
    this.#message = grown;
    return grown;
  }

  #judgeText(piece: Uint8Array, isEnd: boolean): void {
    if (this.#text === null) return;
    try {
      this.#text.decode(piece, { stream: !isEnd });
    } catch {
      throw new WebSocketFault(webSocketCloseCodes.invalidText, 'a text is not UTF-8');
    }
  }

  #end({ opcode, isFinal, length }: Frame, sink: WebSocketSink): void {
    this.#frame = null;
    if (opcode >= 8) return this.#onControl(opcode, this.#control.slice(0, length), sink);
    if (!isFinal) return;
    this.#judgeText(new Uint8Array(0), true);
    const payload = this.#message.subarray(0, this.#messageBytes);
    const isText = this.#kind === webSocketOpcodes.text;
    // The next message gets a buffer of its own: this one is the receiver's.
    this.#message = new Uint8Array(0);
    this.#messageBytes = 0;
    this.#kind = null;
    this.#text = null;
    sink.onMessage(payload, isText);
  }

  #onControl(opcode: number, payload: Uint8Array, sink: WebSocketSink): void {
    if (opcode === webSocketOpcodes.ping) return sink.onPing(payload);
    if (opcode === webSocketOpcodes.pong) return sink.onPong(payload);
    const { code, reason } = readClose(payload);
    this.#isOver = true;
    sink.onClose(code, reason);
  }
}

/** Of a length that its first seven bits do not hold. */
const extendedBytes = (short: number): number => (short === 126 ? 2 : short === 127 ? 8 : 0);

/** FIN, three reserved bits that stand for extensions, an opcode. */
function assertFirst(octet: number): void {
  const opcode = octet & 0x0f;
  if ((octet & 0x70) !== 0) throw violation('a reserved bit is set, and no extension was agreed on');
  if ((opcode > 2 && opcode < 8) || opcode > 10) throw violation(`there is no opcode ${opcode}`);
  if (opcode >= 8 && octet < 0x80) throw violation('a control frame is not fragmented');
}

function readClose(payload: Uint8Array): { code: number | null; reason: string } {
  if (payload.length === 0) return { code: null, reason: '' };
  if (payload.length === 1) throw violation('a close frame has a code of two bytes, or nothing');
  const code = new DataView(payload.buffer, payload.byteOffset).getUint16(0);
  if (!isCloseCode(code)) throw violation(`${code} is no code of a close frame`);
  try {
    return { code, reason: new TextDecoder('utf-8', { fatal: true }).decode(payload.subarray(2)) };
  } catch {
    throw new WebSocketFault(webSocketCloseCodes.invalidText, 'the reason of a close frame is not UTF-8');
  }
}

/** The bytes before a payload, one frame a message. @param mask of four bytes; null: a server's frame */
function frameHeader(opcode: number, length: number, mask: Uint8Array | null): Uint8Array {
  const lengthBytes = length < 126 ? 0 : length < 65_536 ? 2 : 8;
  const header = new Uint8Array(2 + lengthBytes + (mask === null ? 0 : 4));
  const view = new DataView(header.buffer);
  header[0] = 0x80 | opcode;
  header[1] = (mask === null ? 0 : 0x80) | (lengthBytes === 0 ? length : lengthBytes === 2 ? 126 : 127);
  if (lengthBytes === 2) view.setUint16(2, length);
  if (lengthBytes === 8) view.setBigUint64(2, BigInt(length));
  if (mask !== null) header.set(mask, 2 + lengthBytes);
  return header;
}

/** One whole frame. @param mask as for frameHeader; the payload given is left as it is */
export function encodeWebSocketFrame(opcode: number, payload: Uint8Array, mask: Uint8Array | null): Uint8Array {
  const header = frameHeader(opcode, payload.length, mask);
  const out = new Uint8Array(header.length + payload.length);
  out.set(header);
  if (mask === null) out.set(payload, header.length);
  else for (let i = 0; i < payload.length; i += 1) out[header.length + i] = (payload[i] as number) ^ (mask[i & 3] as number);
  return out;
}

/** @param reason cut to what a control frame holds */
export function closePayload(code: number | null, reason = ''): Uint8Array {
  if (code === null) return new Uint8Array(0);
  let text = new TextEncoder().encode(reason);
  // A character that is cut through would be no UTF-8.
  for (let length = reason.length; text.length > controlBytes - 2; length -= 1)
    text = new TextEncoder().encode(reason.slice(0, length).replace(/[\ud800-\udbff]$/, ''));
  const payload = new Uint8Array(2 + text.length);
  new DataView(payload.buffer).setUint16(0, code);
  payload.set(text, 2);
  return payload;
}
