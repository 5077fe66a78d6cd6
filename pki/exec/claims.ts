/** What an exec ticket says (EXEC-001 to EXEC-004, TUN-002), written and read by one table. */
import { isNodeId } from '../../domain/commands/ids.ts';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';

export const ticketType = 'bc-exec+jwt';
export const maxTicketSeconds = 60;

/** What a ticket is for. */
export interface TicketSubject {
  readonly nodeId: string;
  /** The caller's session: when it ends, so does the tunnel. */
  readonly sessionId: string;
  /** What may be opened, by a word of the table of operations. */
  readonly operation: string;
  /** Who was allowed to. */
  readonly actor: string;
  /** Where it leads, for operations that lead to an instance. */
  readonly destination?: string | undefined;
}

export interface TicketClaims {
  readonly iss: string;
  readonly aud: string;
  readonly sub: string;
  readonly sid: string;
  readonly op: string;
  readonly iat: number;
  readonly exp: number;
  readonly jti: string;
  readonly dst?: string;
}

/** Claim → what it must look like. A ticket has exactly these; `dst` may be absent. */
export const claimForms: Readonly<Record<keyof TicketClaims, RegExp | 'seconds'>> = Object.freeze({
  iss: /^https?:\/\/[^\s/]{1,253}$/,
  aud: /^node:[A-Za-z0-9._-]{1,63}$/,
  sub: /^[\x21-\x7e]{1,256}$/,
  sid: /^[\x21-\x7e]{1,128}$/,
  op: /^[a-z][a-z0-9.-]{0,63}$/,
  iat: 'seconds',
  exp: 'seconds',
  jti: /^[A-Za-z0-9_-]{22}$/,
  dst: /^[\x21-\x7e]{1,200}$/,
});

export const audienceOf = (nodeId: string): string => `node:${nodeId}`;

const invalid = (reason: string, message: string): ControlError => new ControlError('INVALID_INPUT', message, { details: { reason } });

/** @throws INVALID_INPUT naming what no ticket can say */
export function ticketClaims(
  { nodeId, sessionId, operation, actor, destination }: TicketSubject,
  {
    issuer,
    now,
    lifetimeSeconds,
    jti,
  }: { readonly issuer: string; readonly now: number; readonly lifetimeSeconds: number; readonly jti: string },
): TicketClaims {
  if (!isNodeId(nodeId)) throw invalid('ticket-node', `${JSON.stringify(nodeId.slice(0, 64))} is no node id`);
  if (!Number.isInteger(lifetimeSeconds) || lifetimeSeconds < 1 || lifetimeSeconds > maxTicketSeconds)
    throw invalid('ticket-lifetime', `an exec ticket lives 1 to ${maxTicketSeconds} s, not ${lifetimeSeconds}`);
  const iat = Math.floor(now / second);
  const claims = {
    iss: issuer,
    aud: audienceOf(nodeId),
    sub: actor,
    sid: sessionId,
    op: operation,
    iat,
    exp: iat + lifetimeSeconds,
    jti,
    ...(destination === undefined ? {} : { dst: destination }),
  };
  const wrong = wrongClaimOf(claims);
  if (wrong !== null) throw invalid('ticket-claim', `an exec ticket cannot have ${wrong} ${JSON.stringify(claims[wrong]).slice(0, 64)}`);
  return claims;
}

/** The first claim that has not its form; null when all have. Pure. */
export function wrongClaimOf(claims: Readonly<Partial<Record<keyof TicketClaims, unknown>>>): keyof TicketClaims | null {
  for (const [name, form] of Object.entries(claimForms) as [keyof TicketClaims, RegExp | 'seconds'][]) {
    const value = claims[name];
    if (name === 'dst' && value === undefined) continue;
    const good = form === 'seconds' ? Number.isSafeInteger(value) && (value as number) >= 0 : typeof value === 'string' && form.test(value);
    if (!good) return name;
  }
  return null;
}

const loopback = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;
const maxIssuerLength = 256;

/** The origin of the api's base URL (KEY-034). @throws INVALID_CONFIG (ticket-issuer) unless it is exactly an https origin, or http on loopback */
export function parseTicketIssuer(text: string): string {
  const url = text.length <= maxIssuerLength && URL.canParse(text) ? new URL(text) : null;
  const secure = url?.protocol === 'https:' || (url?.protocol === 'http:' && loopback.test(url.hostname));
  if (url !== null && secure && url.origin === text) return text;
  throw new ControlError(
    'INVALID_CONFIG',
    `${JSON.stringify(text.slice(0, 200))} cannot issue exec tickets: it must be the origin of the api's base URL, such as https://compute.example.com`,
    { details: { reason: 'ticket-issuer' } },
  );
}
