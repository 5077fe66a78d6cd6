/** Headers and trailers of the gRPC protocol over HTTP/2, and the text encoding of grpc-message. */
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2';
import type { WireRefusal } from './refusals.ts';

const contentTypes = Object.freeze(['application/grpc', 'application/grpc+proto'] as const);

/** Parameters are allowed; another suffix (application/grpc+json) is another content type (TRN-016, TRN-022). */
export function isGrpcContentType(value: string | undefined): boolean {
  const bare = value?.split(';', 1)[0]?.trim().toLowerCase();
  return contentTypes.some((type) => type === bare);
}

const unreserved = (byte: number): boolean => byte >= 0x20 && byte <= 0x7e && byte !== 0x25;

/** Percent-encodes the UTF-8 bytes outside 0x20..0x7E, and the percent sign itself (TRN-018). */
export function encodeGrpcMessage(message: string): string {
  let out = '';
  for (const byte of Buffer.from(message, 'utf8')) {
    out += unreserved(byte) ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return out;
}

/** What a peer sent as grpc-message; a percent sign that starts no byte stays as it is. */
export function decodeGrpcMessage(encoded: string): string {
  const bytes = encoded.replace(/%([0-9a-fA-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, 'latin1').toString('utf8');
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
