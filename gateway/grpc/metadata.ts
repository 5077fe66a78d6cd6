/** Headers and trailers of the gRPC protocol over HTTP/2. */
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2';
import { encodeGrpcMessage } from '../../proto/index.ts';
import type { WireRefusal } from './refusals.ts';

const contentTypes = Object.freeze(['application/grpc', 'application/grpc+proto'] as const);

/** Parameters are allowed; another suffix (application/grpc+json) is another content type (TRN-016, TRN-022). */
export function isGrpcContentType(value: string | undefined): boolean {
  const bare = value?.split(';', 1)[0]?.trim().toLowerCase();
  return contentTypes.some((type) => type === bare);
}

export const responseHeaders: OutgoingHttpHeaders = Object.freeze({ ':status': 200, 'content-type': 'application/grpc+proto' });

export const okTrailers: OutgoingHttpHeaders = Object.freeze({ 'grpc-status': '0' });

/** The trailers of a refusal; pushback under both names that clients read (TRN-045). */
export function refusalTrailers({ grpc, message, reason, pushbackMs, serverTimeMs }: WireRefusal): OutgoingHttpHeaders {
  const trailers: OutgoingHttpHeaders = { 'grpc-status': String(grpc), 'grpc-message': encodeGrpcMessage(message), 'x-bc-reason': reason };
  if (serverTimeMs !== undefined) trailers['x-bc-server-time-ms'] = String(serverTimeMs);
  if (pushbackMs === null) return trailers;
  return { ...trailers, 'grpc-retry-pushback-ms': String(pushbackMs), 'retry-after': String(Math.ceil(pushbackMs / 1_000)) };
}

/** The transport check before any gRPC: null for a gRPC request, else the HTTP status to answer (TRN-021, TRN-022). */
export function httpRefusalOf(headers: IncomingHttpHeaders): 405 | 415 | null {
  if (headers[':method'] !== 'POST') return 405;
  return isGrpcContentType(headers['content-type']) ? null : 415;
}
