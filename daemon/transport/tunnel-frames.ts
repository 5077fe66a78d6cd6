/**
 * The frames of one tunnel over one HTTP/2 stream, for both of its ends: the daemon's and the caller's. What is received is handled one
 * frame after another, and what is sent waits for room, so a side that takes nothing holds the other back all the way, and nothing piles up.
 */
import { type ClientHttp2Stream, constants, type IncomingHttpHeaders } from 'node:http2';
import type { Writable } from 'node:stream';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { bounds, decodeMessage, encodeMessage, frameMessage, type TunnelFrame, TunnelFrameSchema } from '../../proto/index.ts';
import { refusalOf } from './grpc-status.ts';
import { createMessageCutter } from './message-cutter.ts';

export type TunnelFrameInit = MessageInitShape<typeof TunnelFrameSchema>;

/** One write. A stream that is gone by then takes it and drops it. */
export async function writeWhole(to: Writable, bytes: Uint8Array): Promise<void> {
  if (to.destroyed || to.writableEnded || to.write(bytes)) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      to.off('drain', done).off('close', done);
      resolve();
    };
    to.once('drain', done).once('close', done);
  });
}

export class TunnelFrames {
  readonly #stream: ClientHttp2Stream;
  #headers: IncomingHttpHeaders | undefined;
  /** Resolves, never rejects, when nothing more can come or go. */
  readonly closed: Promise<void>;

  constructor(stream: ClientHttp2Stream) {
    this.#stream = stream;
    stream.on('response', (headers) => void (this.#headers = { ...this.#headers, ...headers }));
    stream.on('trailers', (headers) => void (this.#headers = { ...this.#headers, ...headers }));
    // 'close' follows and says all there is to say.
    stream.on('error', () => undefined);
    this.closed = new Promise((resolve) => void stream.once('close', () => resolve()));
  }

  /** What the gateway refused it for; null when it did not. */
  get refusal(): ControlError | null {
    return refusalOf(this.#headers);
  }

  send(frame: TunnelFrameInit): Promise<void> {
    return writeWhole(this.#stream, frameMessage(encodeMessage(TunnelFrameSchema, frame, 'tunnelFrame'), Buffer.allocUnsafe));
  }

  /** In pieces that the protocol allows. */
  async sendData(channel: number, data: Uint8Array): Promise<void> {
    for (let at = 0; at < data.length; at += bounds.tunnelData)
      await this.send({ frame: { case: 'data', value: { channel, data: data.subarray(at, at + bounds.tunnelData) } } });
  }

  sendEnd(channel: number): Promise<void> {
    return this.send({ frame: { case: 'data', value: { channel, end: true } } });
  }

  /** Until the other side sends no more; a frame that this version does not know is passed over. @throws MALFORMED, FRAME_TOO_LARGE; what `onFrame` throws */
  async read(onFrame: (frame: TunnelFrame['frame']) => Promise<void> | void): Promise<void> {
    const cutter = createMessageCutter(bounds.tunnelFrame);
    // A frame that is refused leaves the stream open, so that the refusal can be said.
    for await (const chunk of this.#stream.iterator({ destroyOnReturn: false }))
      for (const message of cutter.push(chunk as Buffer)) {
        const { frame } = decodeFrame(message);
        if (frame.case !== undefined) await onFrame(frame);
      }
  }

  /** What was sent goes out; then the stream is over. */
  end(): void {
    if (this.#stream.destroyed || this.#stream.writableEnded) return;
    // What still comes is dropped: unread, it would use up the connection's window.
    this.#stream.resume();
    this.#stream.end();
  }

  /** At once. */
  cut(): void {
    this.#stream.close(constants.NGHTTP2_CANCEL);
    // One that the peer reset without an error waits for its last write, for ever when nobody takes it.
    this.#stream.destroy();
  }
}

function decodeFrame(message: Uint8Array): TunnelFrame {
  try {
    const frame = decodeMessage(TunnelFrameSchema, message, 'tunnelFrame');
    if (frame.frame.case !== 'data' || frame.frame.value.data.length <= bounds.tunnelData) return frame;
  } catch (cause) {
    throw new ControlError('MALFORMED', 'a frame of the tunnel does not decode', { cause, details: { reason: 'undecodable-frame' } });
  }
  throw new ControlError('FRAME_TOO_LARGE', `a frame of the tunnel carries more than ${bounds.tunnelData} bytes`, {
    details: { reason: 'frame-too-large' },
  });
}
