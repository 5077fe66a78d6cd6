/**
 * gRPC messages on a byte stream: 1 byte of flags, 4 bytes of length, big-endian, then the message (TRN-017).
 *
 * DATA frames have no relation to messages: a prefix may be split over chunks, a chunk may carry several messages. The
 * reader refuses by the prefix: a length above the bound ends the stream before one byte of the message is kept, so a peer
 * cannot make the gateway hold more than one bound per stream.
 */
import { refusal } from './refusals.ts';

export const prefixBytes = 5;

/** One message with its prefix, uncompressed. */
export function frameMessage(message: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(prefixBytes + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, prefixBytes);
  return framed;
}

export interface MessageSink {
  /** @param message a view that is valid during the call only as far as the sink does not keep it */
  onMessage(message: Uint8Array): void;
}

/** Cuts chunks into messages. One per stream; holds nothing between messages. */
export class MessageReader {
  readonly #maxBytes: number;
  /** What came of an unfinished message, prefix included; null between messages. */
  #partial: Buffer[] | null = null;
  #partialBytes = 0;
  /** Prefix and message; 0 while the prefix is unfinished. */
  #wholeBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** True when the stream stops in the middle of a message. */
  get isInMessage(): boolean {
    return this.#partial !== null;
  }

  /**
   * Hands every message that `chunk` completes to `sink`.
   *
   * @throws frame-too-large, compressed; the reader must not be used afterwards
   */
  push(chunk: Buffer, sink: MessageSink): void {
    let at = 0;
    if (this.#partial !== null) at = this.#continue(chunk, sink);
    while (this.#partial === null && chunk.length - at >= prefixBytes) {
      const end = at + this.#checkPrefix(chunk, at);
      if (end > chunk.length) break;
      sink.onMessage(chunk.subarray(at + prefixBytes, end));
      at = end;
    }
    if (this.#partial === null && at < chunk.length) this.#begin(chunk.subarray(at));
  }

  #begin(rest: Buffer): void {
    this.#partial = [rest];
    this.#partialBytes = rest.length;
    this.#wholeBytes = rest.length < prefixBytes ? 0 : this.#checkPrefix(rest, 0);
  }

  /** Adds to the unfinished message; answers how much of the chunk belonged to it. */
  #continue(chunk: Buffer, sink: MessageSink): number {
    const parts = this.#partial as Buffer[];
    let at = 0;
    if (this.#wholeBytes === 0) {
      at = Math.min(prefixBytes - this.#partialBytes, chunk.length);
      parts.push(chunk.subarray(0, at));
      this.#partialBytes += at;
      if (this.#partialBytes < prefixBytes) return at;
      const prefix = Buffer.concat(parts);
      this.#partial = [prefix];
      this.#wholeBytes = this.#checkPrefix(prefix, 0);
    }
    const take = Math.min(this.#wholeBytes - this.#partialBytes, chunk.length - at);
    if (take > 0) (this.#partial as Buffer[]).push(chunk.subarray(at, at + take));
    this.#partialBytes += take;
    if (this.#partialBytes === this.#wholeBytes) this.#finish(sink);
    return at + take;
  }

  #finish(sink: MessageSink): void {
    const whole = Buffer.concat(this.#partial as Buffer[], this.#wholeBytes);
    this.#partial = null;
    this.#partialBytes = 0;
    this.#wholeBytes = 0;
    sink.onMessage(whole.subarray(prefixBytes));
  }

  /** Bytes of prefix and message. */
  #checkPrefix(bytes: Buffer, at: number): number {
    if (bytes[at] !== 0) throw refusal('compressed');
    const length = bytes.readUInt32BE(at + 1);
    if (length > this.#maxBytes) {
      throw refusal('frame-too-large', { message: `a frame of ${length} bytes exceeds the bound of ${this.#maxBytes}` });
    }
    return prefixBytes + length;
  }
}
