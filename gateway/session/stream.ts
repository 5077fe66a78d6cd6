/** What a session needs of the stream that carries it, whichever transport that is: types only. */
import type { Http2Session } from 'node:http2';
import type { WireRefusal } from '../grpc/refusals.ts';
import type { StreamTarget } from './stream-events.ts';

/** An HTTP/2 stream is one as it is. */
export interface SessionStream {
  /** The HTTP/2 connection below it, which carries tunnels too; undefined where there is none. */
  readonly session?: Http2Session | undefined;
  readonly destroyed: boolean;
  readonly writableEnded: boolean;
  /** Bytes queued. */
  readonly writableLength: number;
  /** @param framed one message behind its gRPC prefix */
  write(framed: Buffer): unknown;
  pause(): unknown;
  resume(): unknown;
  destroy(): unknown;
  once(event: 'close', listener: () => void): unknown;
  off(event: 'close', listener: () => void): unknown;
}

/** How one kind of stream begins and ends; one object for all streams of a listener. */
export interface SessionTransport<S extends SessionStream = SessionStream> {
  /** Opens the answer and lets the target hear the stream. */
  open(stream: S, target: StreamTarget): void;
  /** All is well, and over. */
  finish(stream: S): void;
  refuse(stream: S, wire: WireRefusal): void;
  /** For a peer that takes nothing. */
  cut(stream: S): void;
  /** What the peer proved itself with: DER, leaf first. @throws when the connection is gone */
  chainOf(stream: S): readonly Uint8Array[];
  /** The stream is gone; `wasUseful`: it had been a session. */
  closed(stream: S, wasUseful: boolean): void;
}
