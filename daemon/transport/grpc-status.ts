/**
 * How a call ended: from response headers, trailers, or the lack of them, to nothing (it went well) or one ControlError. A missing
 * status is UNAVAILABLE, worth a retry, never a hang (B28).
 */
import type { IncomingHttpHeaders } from 'node:http2';
import { type Code, ControlError } from '../../domain/errors.ts';
import { decodeGrpcMessage } from '../../proto/index.ts';

/** What a refusal carries for the machine: details of the ControlError. */
export interface RefusalFacts {
  /** x-bc-reason. */
  readonly reason: string;
  readonly grpc: number;
  /** grpc-retry-pushback-ms or retry-after; null: none. */
  readonly pushbackMs: number | null;
  /** What the answer says the server's clock shows; null: nothing. */
  readonly serverTimeMs: number | null;
}

/** Reasons that mean something of their own here; everything else goes by its gRPC number. */
const codeByReason: Readonly<Record<string, Code>> = Object.freeze({
  revoked: 'REVOKED',
  'client-certificate-expired': 'CERTIFICATE_EXPIRED',
  'certificate-expired': 'CERTIFICATE_EXPIRED',
  'clock-skew': 'CLOCK_SKEW',
  'ca-expired': 'CA_EXPIRED',
  replayed: 'REPLAYED',
  superseded: 'SUPERSEDED',
});

const codeByGrpc: Readonly<Record<number, Code>> = Object.freeze({
  1: 'CANCELLED',
  3: 'INVALID_INPUT',
  5: 'NOT_FOUND',
  6: 'CONFLICT',
  7: 'PERMISSION_DENIED',
  8: 'RATE_LIMITED',
  9: 'INVALID_STATE',
  10: 'CONFLICT',
  12: 'UNSUPPORTED',
  13: 'INTERNAL',
  15: 'DATA_CORRUPT',
  16: 'UNAUTHENTICATED',
});

/** The gRPC status of an HTTP answer that is none (grpc: http-grpc-status-mapping.md). */
const grpcByHttp: Readonly<Record<number, number>> = Object.freeze({ 400: 13, 401: 16, 403: 7, 404: 12 });

const unavailable = 14;

const longestMessage = 1_024;

/** null when the call went well. @param headers response headers merged with trailers, trailers winning; undefined: none came */
export function refusalOf(headers: IncomingHttpHeaders | undefined): ControlError | null {
  if (headers === undefined) return lost('the gateway ended the call without an answer');
  const grpc = grpcNumber(headers);
  if (grpc === 0) return null;
  if (grpc === null) return lost('the gateway ended the call without a status');
  const message = decodeGrpcMessage(String(headers['grpc-message'] ?? '')).slice(0, longestMessage);
  const reason = String(headers['x-bc-reason'] ?? '');
  const facts: RefusalFacts = {
    reason: /^[a-z][a-z0-9-]{0,63}$/.test(reason) ? reason : '',
    grpc,
    pushbackMs: pushbackOf(headers),
    serverTimeMs: serverTimeOf(headers),
  };
  const code = (Object.hasOwn(codeByReason, facts.reason) ? codeByReason[facts.reason] : codeByGrpc[grpc]) ?? 'UNAVAILABLE';
  return new ControlError(code, message === '' ? `the gateway answered with status ${grpc}` : message, { details: { ...facts } });
}

const lost = (message: string): ControlError =>
  new ControlError('UNAVAILABLE', message, { details: { reason: 'no-status', grpc: unavailable, pushbackMs: null, serverTimeMs: null } });

function grpcNumber(headers: IncomingHttpHeaders): number | null {
  const text = headers['grpc-status'];
  if (typeof text === 'string' && /^\d{1,2}$/.test(text)) return Number(text);
  const http = Number(headers[':status'] ?? 200);
  return http === 200 ? null : (grpcByHttp[http] ?? unavailable);
}

function pushbackOf(headers: IncomingHttpHeaders): number | null {
  const ms = headers['grpc-retry-pushback-ms'];
  if (typeof ms === 'string' && /^\d{1,9}$/.test(ms)) return Number(ms);
  const seconds = headers['retry-after'];
  return typeof seconds === 'string' && /^\d{1,6}$/.test(seconds) ? Number(seconds) * 1000 : null;
}

/** The exact header of our gateways, else the Date that every HTTP answer carries, to the second. */
function serverTimeOf(headers: IncomingHttpHeaders): number | null {
  const exact = headers['x-bc-server-time-ms'];
  if (typeof exact === 'string' && /^\d{1,16}$/.test(exact)) return Number(exact);
  const date = typeof headers.date === 'string' ? Date.parse(headers.date) : Number.NaN;
  return Number.isNaN(date) ? null : date;
}

/** The facts of an error that refusalOf made; neutral ones for any other. */
export function refusalFacts(error: unknown): RefusalFacts {
  const details: Readonly<Record<string, unknown>> = error instanceof ControlError ? error.details : {};
  const number = (name: string): number | null => (typeof details[name] === 'number' ? details[name] : null);
  const reason = details['reason'];
  return {
    reason: typeof reason === 'string' ? reason : '',
    grpc: number('grpc') ?? 0,
    pushbackMs: number('pushbackMs'),
    serverTimeMs: number('serverTimeMs'),
  };
}
