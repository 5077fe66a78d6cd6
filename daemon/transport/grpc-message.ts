/** gRPC messages on a byte stream (TRN-017, TRN-019): one byte of flags, four of length, the message; never compressed. */
import { ControlError } from '../../domain/errors.ts';

const prefixBytes = 5;

export function frameMessage(message: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(prefixBytes + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, prefixBytes);
  return framed;
}

/**
 * Cuts chunks into messages. The length is judged before a byte of the message is kept.
 *
 * The stream of chunks must not be read on after an error.
 */
export class MessageCutter {
  readonly #maxBytes: number;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #wantedBytes = prefixBytes;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The stream stopped in the middle of a message. */
  get isInMessage(): boolean {
    return this.#keptBytes > 0;
  }

  /** @throws FRAME_TOO_LARGE above the bound, UNSUPPORTED for a compressed message */
  push(chunk: Buffer): Buffer[] {
    this.#kept.push(chunk);
    this.#keptBytes += chunk.length;
    const messages: Buffer[] = [];
    while (this.#keptBytes >= this.#wantedBytes) {
      const all = this.#kept.length === 1 ? (this.#kept[0] as Buffer) : Buffer.concat(this.#kept, this.#keptBytes);
      const end = prefixBytes + this.#lengthOf(all);
      if (all.length < end) {
        this.#keep(all, end);
        break;
      }
      messages.push(all.subarray(prefixBytes, end));
      this.#keep(all.subarray(end), prefixBytes);
    }
    return messages;
  }

  #keep(rest: Buffer, wantedBytes: number): void {
    this.#kept = rest.length === 0 ? [] : [rest];
    this.#keptBytes = rest.length;
    this.#wantedBytes = wantedBytes;
  }

  #lengthOf(prefix: Buffer): number {
    if (prefix[0] !== 0)
      throw new ControlError('UNSUPPORTED', 'the gateway sent a compressed message', { details: { reason: 'compressed' } });
    const length = prefix.readUInt32BE(1);
    if (length <= this.#maxBytes) return length;
    throw new ControlError('FRAME_TOO_LARGE', `the gateway sent a message of ${length} bytes, more than ${this.#maxBytes}`, {
      details: { reason: 'frame-too-large' },
    });
  }
}
