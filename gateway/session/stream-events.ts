/** The events of a session's stream, by handlers that all sessions share: nothing is closed over per session (measured). */
import type { ServerHttp2Stream } from 'node:http2';

export interface StreamTarget {
  /** Bytes of the stream, cut anywhere. */
  onChunk(chunk: Buffer): void;
  /** One message, from a transport that keeps them apart itself. */
  onWhole(message: Uint8Array): void;
  onHalfClose(): void;
  onClose(): void;
  onDrain(): void;
}

const targetOf = Symbol('stream-target');

interface WithTarget {
  [targetOf]: StreamTarget;
}

export function attachStream(stream: ServerHttp2Stream, target: StreamTarget): void {
  (stream as unknown as WithTarget)[targetOf] = target;
  stream.on('data', onData);
  stream.on('end', onEnd);
  stream.on('close', onClose);
  stream.on('drain', onDrain);
  // It waited for its turn, and the peer said all it had to say, which was nothing.
  if (stream.readableEnded) process.nextTick(() => onEnd.call(stream));
}

function onData(this: ServerHttp2Stream, chunk: Buffer): void {
  (this as unknown as WithTarget)[targetOf].onChunk(chunk);
}

function onEnd(this: ServerHttp2Stream): void {
  (this as unknown as WithTarget)[targetOf].onHalfClose();
}

function onClose(this: ServerHttp2Stream): void {
  (this as unknown as WithTarget)[targetOf].onClose();
}

function onDrain(this: ServerHttp2Stream): void {
  (this as unknown as WithTarget)[targetOf].onDrain();
}
