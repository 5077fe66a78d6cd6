/**
 * How a server ends an HTTP/2 stream, once and for all.
 *
 * Learned by running Node 20: `close()` in the tick of `sendTrailers` drops the trailers; after trailers a bidirectional
 * stream stays half open until the client half-closes, and a client need not (B20). So trailers go out first, and the
 * RST_STREAM NO_ERROR follows in a later turn of the loop.
 */
import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { refusalTrailers, responseHeaders } from './metadata.ts';
import type { WireRefusal } from './refusals.ts';

const trailersOf = new WeakMap<ServerHttp2Stream, OutgoingHttpHeaders>();

function sendStoredTrailers(this: ServerHttp2Stream): void {
  this.sendTrailers(trailersOf.get(this) ?? { 'grpc-status': '2' });
  closeSoon(this);
}

/** Opens the answer; the trailers follow with `endStream`. */
export function openResponse(stream: ServerHttp2Stream): void {
  stream.respond(responseHeaders, { waitForTrailers: true });
  // `on`: it comes once anyway, and `once` would keep a wrapper per stream.
  stream.on('wantTrailers', sendStoredTrailers);
}

/** Ends the answer with these trailers; trailers-only when no answer was opened (TRN-018). Twice, or after a close, does nothing. */
export function endStream(stream: ServerHttp2Stream, trailers: OutgoingHttpHeaders): void {
  if (stream.destroyed || stream.closed || stream.writableEnded) return;
  // What still comes is read and dropped: unread DATA would use up the connection's window.
  stream.resume();
  if (stream.headersSent) {
    trailersOf.set(stream, trailers);
    stream.end();
    return;
  }
  stream.respond({ ...responseHeaders, ...trailers }, { endStream: true });
  closeSoon(stream);
}

export const refuseStream = (stream: ServerHttp2Stream, wire: WireRefusal): void => endStream(stream, refusalTrailers(wire));

/** Anything that is no gRPC request. */
export function refuseHttp(stream: ServerHttp2Stream, status: number): void {
  if (stream.destroyed || stream.closed) return;
  stream.resume();
  stream.respond({ ':status': status, ...(status === 405 ? { allow: 'POST' } : {}) }, { endStream: true });
  closeSoon(stream);
}

function closeSoon(stream: ServerHttp2Stream): void {
  setImmediate(closeNow, stream);
}

function closeNow(stream: ServerHttp2Stream): void {
  if (!stream.destroyed && !stream.closed) stream.close(constants.NGHTTP2_NO_ERROR);
}

/** For a peer that takes no trailers because it takes nothing: clients read ENHANCE_YOUR_CALM as RESOURCE_EXHAUSTED. */
export function cutStream(stream: ServerHttp2Stream): void {
  if (!stream.destroyed) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
}
