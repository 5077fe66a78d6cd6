/**
 * gRPC messages on a byte stream: 1 byte of flags, 4 bytes of length, big-endian, then the message (TRN-017). Never compressed
 * (TRN-019). Both ends of the connection read and write with this code.
 *
 * DATA frames have no relation to messages: a prefix may be split over chunks, a chunk may carry several messages. The reader
 * refuses by the prefix: a length above the bound ends the stream before one byte of the message is kept, so a peer cannot
 * make the reader hold more than one bound (BND-002).
 */
export const prefixBytes = 5;

/**
 * One message with its prefix, uncompressed.
 *
 * @param allocate gives the bytes to write into, of any content: a server's own pool costs a tenth of a new array (measured)
 */
export function frameMessage<B extends Uint8Array>(message: Uint8Array, allocate: (bytes: number) => B): B {
  const framed = allocate(prefixBytes + message.length);
  writePrefix(framed, message.length);
  framed.set(message, prefixBytes);
  return framed;
}

/** Writes the prefix of a message of `length` bytes at the beginning of `framed`. */
export function writePrefix(framed: Uint8Array, length: number): void {
  framed[0] = 0;
  framed[1] = length >>> 24;
  framed[2] = length >>> 16;
  framed[3] = length >>> 8;
  framed[4] = length;
}

export interface MessageSink {
  /** @param message a view into what was pushed, or into the reader's own copy of a message that came in pieces */
  onMessage(message: Uint8Array): void;
}

export type PrefixFault =
  /** A flag is set; a message with it cannot be read. */
  { readonly reason: 'compressed' } | { readonly reason: 'frame-too-large'; readonly length: number; readonly maxBytes: number };

/** Cuts chunks into messages. One per stream; holds nothing between messages. */
export class MessageReader {
  readonly #maxBytes: number;
  readonly #errorOf: (fault: PrefixFault) => Error;
  /** What came of an unfinished message, prefix included; null between messages. */
  #partial: Uint8Array[] | null = null;
  #partialBytes = 0;
  /** Prefix and message; 0 while the prefix is unfinished. */
  #wholeBytes = 0;

  /** @param errorOf what `push` throws: the two ends have different words for the same fault */
  constructor(maxBytes: number, errorOf: (fault: PrefixFault) => Error) {
    this.#maxBytes = maxBytes;
    this.#errorOf = errorOf;
  }

  /** True when the stream stops in the middle of a message. */
  get isInMessage(): boolean {
    return this.#partial !== null;
  }

  /**
   * Hands every message that `chunk` completes to `sink`.
   *
   * @throws what `errorOf` makes of a bad prefix; the reader must not be used afterwards
   */
  push(chunk: Uint8Array, sink: MessageSink): void {
    let at = 0;
    if (this.#partial !== null) at = this.#continue(this.#partial, chunk, sink);
    while (this.#partial === null && chunk.length - at >= prefixBytes) {
      const end = at + this.#checkPrefix(chunk, at);
      if (end > chunk.length) break;
      sink.onMessage(chunk.subarray(at + prefixBytes, end));
      at = end;
    }
    if (this.#partial === null && at < chunk.length) this.#begin(chunk.subarray(at));
  }

  #begin(rest: Uint8Array): void {
    this.#partial = [rest];
    this.#partialBytes = rest.length;
    this.#wholeBytes = rest.length < prefixBytes ? 0 : this.#checkPrefix(rest, 0);
  }

  /** Adds to the unfinished message; answers how much of the chunk belonged to it. */
  #continue(parts: Uint8Array[], chunk: Uint8Array, sink: MessageSink): number {
    let at = 0;
    if (this.#wholeBytes === 0) {
      at = Math.min(prefixBytes - this.#partialBytes, chunk.length);
      parts.push(chunk.subarray(0, at));
      this.#partialBytes += at;
      if (this.#partialBytes < prefixBytes) return at;
      const prefix = joined(parts, prefixBytes);
      parts.splice(0, parts.length, prefix);
      this.#wholeBytes = this.#checkPrefix(prefix, 0);
    }
    const take = Math.min(this.#wholeBytes - this.#partialBytes, chunk.length - at);
    if (take > 0) parts.push(chunk.subarray(at, at + take));
    this.#partialBytes += take;
    if (this.#partialBytes === this.#wholeBytes) this.#finish(parts, sink);
    return at + take;
  }

  #finish(parts: readonly Uint8Array[], sink: MessageSink): void {
    const whole = joined(parts, this.#wholeBytes);
    this.#partial = null;
    this.#partialBytes = 0;
    this.#wholeBytes = 0;
    sink.onMessage(whole.subarray(prefixBytes));
  }

  /** Bytes of prefix and message. */
  #checkPrefix(bytes: Uint8Array, at: number): number {
    if (bytes[at] !== 0) throw this.#errorOf({ reason: 'compressed' });
    const length = uint32At(bytes, at + 1);
    if (length > this.#maxBytes) throw this.#errorOf({ reason: 'frame-too-large', length, maxBytes: this.#maxBytes });
    return prefixBytes + length;
  }
}

function joined(parts: readonly Uint8Array[], bytes: number): Uint8Array {
  const whole = new Uint8Array(bytes);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const byteAt = (bytes: Uint8Array, at: number): number => bytes[at] as number;

/** Big-endian. */
const uint32At = (bytes: Uint8Array, at: number): number =>
  byteAt(bytes, at) * 0x1000000 + ((byteAt(bytes, at + 1) << 16) | (byteAt(bytes, at + 2) << 8) | byteAt(bytes, at + 3));
