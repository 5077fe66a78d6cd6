/**
 * Every refusal that ends a stream, in one table (TRN-043, TRN-044): the reason a daemon reads in `x-bc-reason`, the error
 * code (which fixes the gRPC and the HTTP status, domain/errors.ts), the sentence for people, and for how long the daemon
 * is asked to stay away.
 *
 * Invariants: a fault of ours says INTERNAL and nothing else on the wire; a refusal that a retry can cure carries
 * `grpc-retry-pushback-ms`, jittered, so that a refused herd does not come back in one piece (B33).
 */
import { type Code, ControlError, errorTable, isControlError } from '../../domain/errors.ts';
import type { PrefixFault } from '../../proto/index.ts';

export interface RefusalRow {
  readonly code: Code;
  readonly message: string;
  /** The least the daemon waits; the answer carries up to twice as much. */
  readonly pushbackMs?: number;
}

const row = (code: Code, message: string, pushbackMs?: number): RefusalRow =>
  Object.freeze(pushbackMs === undefined ? { code, message } : { code, message, pushbackMs });

export const refusalTable = Object.freeze({
  'no-client-certificate': row('UNAUTHENTICATED', 'a client certificate is required'),
  'client-certificate-invalid': row('UNAUTHENTICATED', 'the client certificate does not verify'),
  'client-certificate-expired': row('CERTIFICATE_EXPIRED', 'the client certificate has expired'),
  'client-certificate-not-yet-valid': row('UNAUTHENTICATED', 'the client certificate is not valid yet', 5_000),
  'session-resumed': row('UNAUTHENTICATED', 'a resumed TLS session proves no certificate'),
  'bad-proof': row('UNAUTHENTICATED', 'the proof of possession does not verify'),
  revoked: row('REVOKED', 'the certificate was revoked'),
  'wrong-trust-domain': row('PERMISSION_DENIED', 'the certificate belongs to another trust domain'),
  'wrong-role': row('PERMISSION_DENIED', "the certificate's role may not open a session"),
  'node-not-active': row('PERMISSION_DENIED', 'the node is not active'),
  'other-node': row('PERMISSION_DENIED', 'the request names another node than the certificate'),
  'join-refused': row('PERMISSION_DENIED', 'the join was refused'),
  'first-frame-not-hello': row('MALFORMED', 'the first frame must be hello'),
  'first-frame-not-ticket': row('MALFORMED', 'the first frame of a tunnel must be a ticket'),
  'second-hello': row('MALFORMED', 'hello came twice'),
  'undecodable-frame': row('MALFORMED', 'a frame does not decode'),
  'no-message': row('MALFORMED', 'the call ended without a message'),
  'more-than-one-message': row('MALFORMED', 'a unary call carries one message'),
  'invalid-protocol-range': row('MALFORMED', 'the protocol range of hello is no range'),
  compressed: row('UNSUPPORTED', 'compressed messages are not accepted'),
  'unknown-method': row('UNSUPPORTED', 'no such method'),
  'frame-too-large': row('FRAME_TOO_LARGE', 'a frame exceeds its bound'),
  'send-budget': row('RATE_LIMITED', 'the peer does not read what it is sent', 1_000),
  'too-many-resets': row('RATE_LIMITED', 'too many streams were given up on this connection', 5_000),
  // The same words whether the node is not here, unknown, or the ticket is bad: callers are strangers.
  'ticket-refused': row('PERMISSION_DENIED', 'the ticket opens nothing here'),
  'no-such-tunnel': row('NOT_FOUND', 'no such tunnel was asked for'),
  'tunnel-not-opened': row('UNAVAILABLE', 'the machine opened nothing for this ticket'),
  'renew-rate-limit': row('RATE_LIMITED', 'the node renewed too often'),
  'protocol-too-new': row('INVALID_STATE', 'this gateway speaks no protocol version of the daemon'),
  'generation-superseded': row('INVALID_STATE', "the certificate's identity generation was superseded"),
  superseded: row('SUPERSEDED', 'a newer session of the same node took over'),
  'hello-deadline': row('UNAVAILABLE', 'no hello came in time', 1_000),
  'heartbeat-lost': row('UNAVAILABLE', 'no frame came for too long', 1_000),
  draining: row('UNAVAILABLE', 'this gateway is going away', 500),
  overloaded: row('UNAVAILABLE', 'this gateway has no room now', 2_000),
  'services-unavailable': row('UNAVAILABLE', 'the control plane does not answer', 2_000),
  'database-unavailable': row('UNAVAILABLE', 'the gateway is cut off from its database', 5_000),
  internal: row('INTERNAL', 'internal error'),
} as const satisfies Record<string, RefusalRow>);

export type RefusalReason = keyof typeof refusalTable;

const isRefusalReason = (value: unknown): value is RefusalReason => typeof value === 'string' && Object.hasOwn(refusalTable, value);

export interface RefusalDetails {
  /** Replaces the table's sentence; never a secret, never a cause's text. */
  readonly message?: string;
  /** An exact wait that the caller computed; sent as it is. */
  readonly pushbackMs?: number;
  readonly cause?: unknown;
}

/** The error that ends a stream for `reason`; throw it anywhere below the stream. */
export function refusal(reason: RefusalReason, { message, pushbackMs, cause }: RefusalDetails = {}): ControlError {
  const entry: RefusalRow = refusalTable[reason];
  const details = pushbackMs === undefined ? { reason } : { reason, pushbackMs };
  return new ControlError(entry.code, message ?? entry.message, { details, cause });
}

/** A message that is refused by its prefix. */
export const prefixRefusal = (fault: PrefixFault): ControlError =>
  fault.reason === 'compressed'
    ? refusal('compressed')
    : refusal('frame-too-large', { message: `a frame of ${fault.length} bytes exceeds the bound of ${fault.maxBytes}` });

/** A refusal as it goes on the wire. */
export interface WireRefusal {
  readonly grpc: number;
  readonly http: number;
  readonly reason: string;
  readonly message: string;
  readonly pushbackMs: number | null;
  /** The server's clock, where the peer's was what was wrong (H-14). */
  readonly serverTimeMs?: number;
}

/** The one translator of this edge: any thrown value → what the peer is told. */
export function toWireRefusal(error: unknown, random: () => number): WireRefusal {
  if (!isControlError(error) || error.code === 'INTERNAL') return onWire('internal', refusalTable.internal, null);
  const reason = error.details['reason'];
  const known: RefusalRow | null = isRefusalReason(reason) ? refusalTable[reason] : null;
  const exact = error.details['pushbackMs'];
  const pushbackMs = typeof exact === 'number' ? exact : jittered(known?.pushbackMs ?? defaultPushback(error.code), random);
  const name = typeof reason === 'string' && /^[a-z][a-z0-9-]{0,63}$/.test(reason) ? reason : kebab(error.code);
  const wire = onWire(name, { code: error.code, message: error.message }, pushbackMs);
  const serverTimeMs = error.details['serverTimeMs'];
  return Number.isSafeInteger(serverTimeMs) ? { ...wire, serverTimeMs: serverTimeMs as number } : wire;
}

const onWire = (reason: string, { code, message }: RefusalRow, pushbackMs: number | null): WireRefusal => ({
  grpc: errorTable[code].grpc,
  http: errorTable[code].http,
  reason,
  message,
  pushbackMs,
});

/** Retryable by the table, but not ours: the daemon waits at least this long. */
const defaultPushback = (code: Code): number | undefined => (errorTable[code].retryable ? 2_000 : undefined);

const jittered = (baseMs: number | undefined, random: () => number): number | null =>
  baseMs === undefined ? null : Math.round(baseMs * (1 + random()));

const kebab = (code: string): string => code.toLowerCase().replaceAll('_', '-');
