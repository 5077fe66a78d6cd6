/**
 * One error class with closed codes, and one table that says for each code what every edge needs: the hint a person
 * reads, the CLI's exit code, the gRPC status, the HTTP status, and whether a retry can help. Edges translate from here
 * (toGrpc, toProblem, toApplicationFailure, toExit); nothing else decides how an error looks.
 *
 * Messages are lower case, without a final period, and name the thing and its values. A message never repeats its
 * cause's; causes go to logs, never over a wire.
 */
export interface ErrorSpec {
  readonly hint: string;
  readonly exit: number;
  readonly grpc: number;
  readonly http: number;
  readonly retryable: boolean;
}

type Row = readonly [exit: number, grpc: number, http: number, retryable: boolean, hint: string];

const spec = (...[exit, grpc, http, retryable, hint]: Row): ErrorSpec => Object.freeze({ exit, grpc, http, retryable, hint });

/** Code → what each edge does with it. gRPC numbers are those of the gRPC specification. */
export const errorTable = Object.freeze({
  INVALID_INPUT: spec(2, 3, 400, false, 'correct the named value and try again'),
  MISSING_ENV: spec(2, 9, 400, false, 'set the named environment variable and try again'),
  INVALID_CONFIG: spec(3, 9, 400, false, 'correct the configuration, or restore the bundle from a backup'),
  INVALID_STATE: spec(4, 9, 409, false, 'look at the current state first; the message names the step that comes next'),
  CONFLICT: spec(4, 10, 409, false, 'someone else changed it first: read it again and repeat the change'),
  NOT_FOUND: spec(5, 5, 404, false, 'check the name; the list command shows what exists'),
  UNAUTHENTICATED: spec(6, 16, 401, false, 'present a valid credential'),
  PERMISSION_DENIED: spec(6, 7, 403, false, 'this identity may not do that'),
  REVOKED: spec(6, 7, 403, false, 'the identity was revoked: join again with a new token'),
  CERTIFICATE_EXPIRED: spec(6, 16, 401, false, 'join again: better-compute tokens create, then bcd join'),
  CA_EXPIRED: spec(7, 14, 503, true, 'renew the certificate authority: better-compute pki renew-ca'),
  CLOCK_SKEW: spec(6, 16, 401, true, 'correct the clock; the answer carries the server time'),
  REPLAYED: spec(6, 16, 401, false, 'make a new request; this one was used before'),
  BAD_SIGNATURE: spec(6, 16, 401, false, 'the bytes were not signed by the expected key'),
  MALFORMED: spec(2, 3, 400, false, 'the bytes are not what the format says'),
  FRAME_TOO_LARGE: spec(2, 8, 413, false, 'send less: docs/errors.md lists the bounds'),
  UNSUPPORTED: spec(2, 12, 400, false, 'this version cannot do that'),
  RATE_LIMITED: spec(8, 8, 429, true, 'wait as long as the answer says'),
  SUPERSEDED: spec(4, 10, 409, false, 'a newer session of the same node took over'),
  UNAVAILABLE: spec(8, 14, 503, true, 'try again shortly; better-compute doctor says what is down'),
  STALE_BUNDLE: spec(3, 9, 409, false, 'this process holds an older key bundle than the deployment: restore the current one'),
  NOT_YET: spec(8, 9, 409, true, 'the condition is not met yet; better-compute stuck says who is waited for'),
  PORT_TAKEN: spec(3, 14, 503, false, 'choose another port, or stop the process that holds it'),
  INVALID_RESPONSE: spec(9, 13, 502, false, 'the answer cannot be used: sign nothing, and look at the control plane'),
  SCOPE_MISMATCH: spec(9, 15, 409, false, 'sign nothing: what is listed is not what approvers are asked to sign'),
  SCOPE_CHANGED: spec(4, 10, 409, false, 'this is not the batch that was reviewed: review it again'),
  SCOPE_UNEXPECTED: spec(4, 9, 409, false, 'sign nothing, or correct the list of what is expected'),
  UNBOUND_SCOPE: spec(4, 9, 409, false, 'have the batch made with its payloads, or allow any payload with --allow-unbound'),
  AUDIT_TAMPERED: spec(9, 15, 500, false, 'the record does not match its signature: compare with a backup'),
  DATA_CORRUPT: spec(
    9,
    15,
    500,
    false,
    'the file does not read back as it was written: restore its copy, or start again with a new identity',
  ),
  CANCELLED: spec(130, 1, 499, false, 'it was cancelled'),
  INTERNAL: spec(70, 13, 500, false, 'this is a fault of ours: the log has the details'),
} as const satisfies Record<string, ErrorSpec>);

export type Code = keyof typeof errorTable;

export interface ControlErrorOptions {
  /** Facts for machines: `reason` (kebab-case), the values involved. Never a secret. */
  readonly details?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
}

export class ControlError<C extends Code = Code> extends Error {
  override readonly name = 'ControlError';
  readonly code: C;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(code: C, message: string, options: ControlErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = Object.freeze({ ...options.details });
  }
}

export const isControlError = (error: unknown): error is ControlError => error instanceof ControlError;

export const isCode = (value: unknown): value is Code => typeof value === 'string' && Object.hasOwn(errorTable, value);

/** The code of any thrown value; INTERNAL for what is not ours. */
export const codeOf = (error: unknown): Code => (isControlError(error) ? error.code : 'INTERNAL');
