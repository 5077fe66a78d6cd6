/**
 * What a session has queued to its peer, counted here: Node bounds nothing on the way out (1,000 × 64 KiB to a peer that
 * never reads = 62.5 MiB in memory), and `write` saying false stops nobody.
 */
import { encodeMessage, frameMessage, ServerFrameSchema } from '../../proto/index.ts';
import type { ServerFrameInit } from './contract.ts';
import type { SessionStream } from './stream.ts';

export const outboundLimits = Object.freeze({
  /** Bytes queued before the session ends. */
  budgetBytes: 4 * 1024 * 1024,
  /** Bytes queued before commands wait. */
  backlogBytes: 256 * 1024,
  /** A queue that moves no byte for this long is dead. */
  stalledMs: 30_000,
});

export class Outbound {
  readonly #stream: SessionStream;
  #sentBytes = 0;
  #flushedAtSweep = 0;
  #stalledSince = 0;

  constructor(stream: SessionStream) {
    this.#stream = stream;
  }

  get queuedBytes(): number {
    return this.#stream.writableLength;
  }

  get hasRoom(): boolean {
    return this.#stream.writableLength < outboundLimits.backlogBytes;
  }

  /** @returns false, with nothing queued, when the frame would exceed the budget */
  send(frame: ServerFrameInit): boolean {
    return this.write(frameMessage(encodeMessage(ServerFrameSchema, frame, 'serverFrame'), Buffer.allocUnsafe));
  }

  /** As `send`, for bytes that are framed already. */
  write(framed: Buffer): boolean {
    if (this.#stream.destroyed || this.#stream.writableEnded) return true;
    if (this.#stream.writableLength + framed.length > outboundLimits.budgetBytes) return false;
    this.#sentBytes += framed.length;
    this.#stream.write(framed);
    return true;
  }

  /** Called once a second: true when the queue has not moved for too long. */
  isStalled(now: number): boolean {
    const flushed = this.#sentBytes - this.#stream.writableLength;
    const isMoving = this.#stream.writableLength === 0 || flushed !== this.#flushedAtSweep;
    this.#flushedAtSweep = flushed;
    if (isMoving) this.#stalledSince = 0;
    else if (this.#stalledSince === 0) this.#stalledSince = now;
    return this.#stalledSince !== 0 && now - this.#stalledSince >= outboundLimits.stalledMs;
  }
}
