/** Who judges an exec ticket: first the gateway, then the node, each by the keys of the node's spec (EXEC-002 to EXEC-006, EXEC-009). */
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import {
  decodeBase64url,
  type JsonObject,
  type JwkDocument,
  type PublicJwk,
  parseJsonObject,
  parseJwks,
  verifyJws,
} from '../jose/index.ts';
import { audienceOf, claimForms, maxTicketSeconds, type TicketClaims, ticketType, wrongClaimOf } from './claims.ts';

/** Remembers which tickets were used. */
export interface TicketGuard {
  /** True for the first claim of a jti; it is remembered until `expiresAt`. @throws UNAVAILABLE when it can remember no more */
  claim(jti: string, times: { readonly expiresAt: number; readonly now: number }): boolean;
}

export interface VerifyTicketOptions {
  /** Of the node's spec: parseTicketKeys. */
  readonly keys: readonly PublicJwk[];
  /** The api of this deployment. */
  readonly issuer: string;
  readonly nodeId: string;
  readonly now: number;
  readonly guard: TicketGuard;
}

/** A ticket that may be acted on, once. */
export interface VerifiedTicket extends TicketClaims {
  readonly kid: string;
}

/** How far ahead of this clock the issuer's may be. */
const maxAheadMs = 30 * second;

const denied = (reason: string, message: string): ControlError => new ControlError('PERMISSION_DENIED', message, { details: { reason } });

/**
 * Takes a ticket, or says why not. Nothing is remembered of one that is refused, so a forgery uses none up.
 *
 * @throws MALFORMED, UNSUPPORTED, BAD_SIGNATURE, PERMISSION_DENIED (typ) as verifyJws; PERMISSION_DENIED: ticket-issuer,
 *   ticket-audience, ticket-lifetime; UNAUTHENTICATED: ticket-expired, ticket-early; REPLAYED
 */
export function verifyExecTicket(text: string, options: VerifyTicketOptions): VerifiedTicket {
  const { header, payload } = verifyJws(text, { keys: options.keys, typ: ticketType }); // 1. a ticket, by a key of the spec
  const claims = readClaims(parseJsonObject(payload, 'ticket')); //                        2. exactly the claims of one
  assertIssuer(claims, options.issuer); //                                                 3. of this deployment's api
  assertAudience(claims, options.nodeId); //                                               4. for this node
  assertLife(claims); //                                                                   5. of 60 s at most
  assertTime(claims, options.now); //                                                      6. now
  assertUnused(claims, options); //                                                        7. for the first time
  return Object.freeze({ ...claims, kid: header.kid ?? '' });
}

/** The node that a ticket claims to be for, so that its keys can be found; nothing of it is believed. null for what is no ticket. */
export function ticketNodeOf(text: string): string | null {
  try {
    const { aud } = parseJsonObject(decodeBase64url(text.split('.', 2)[1] ?? '', 'ticket'), 'ticket');
    return typeof aud === 'string' && claimForms.aud instanceof RegExp && claimForms.aud.test(aud)
      ? aud.slice(audienceOf('').length)
      : null;
  } catch {
    return null;
  }
}

/** Whether a later ticket lets the tunnel of an earlier one go on: the same caller, session, node, operation and destination. */
export const isForSameTunnel = (one: VerifiedTicket, other: VerifiedTicket): boolean =>
  (['iss', 'aud', 'sub', 'sid', 'op', 'dst'] as const).every((name) => one[name] === other[name]);

function readClaims(value: JsonObject): TicketClaims {
  const unknown = Object.keys(value).find((name) => !Object.hasOwn(claimForms, name));
  const wrong = unknown ?? wrongClaimOf(value);
  if (wrong === null) return value as unknown as TicketClaims;
  const what = unknown === undefined ? 'is missing or not of its form' : 'is no claim of an exec ticket';
  throw new ControlError('MALFORMED', `ticket.${wrong.slice(0, 64)} ${what}`, {
    details: { reason: 'field', field: `ticket.${wrong.slice(0, 64)}` },
  });
}

function assertIssuer({ iss }: TicketClaims, issuer: string): void {
  if (iss !== issuer) throw denied('ticket-issuer', `the ticket is of ${iss}, not of ${issuer}`);
}

/** One node, as a text: a list would open a second one. */
function assertAudience({ aud }: TicketClaims, nodeId: string): void {
  if (aud !== audienceOf(nodeId)) throw denied('ticket-audience', `the ticket is for ${aud}, not for ${audienceOf(nodeId)}`);
}

function assertLife({ iat, exp }: TicketClaims): void {
  const life = exp - iat;
  if (life < 1 || life > maxTicketSeconds) throw denied('ticket-lifetime', `the ticket lives ${life} s, not 1 to ${maxTicketSeconds}`);
}

function assertTime({ iat, exp }: TicketClaims, now: number): void {
  if (now >= exp * second)
    throw new ControlError('UNAUTHENTICATED', 'the ticket is over', { details: { reason: 'ticket-expired', expiresAt: exp * second } });
  if (iat * second > now + maxAheadMs)
    throw new ControlError('UNAUTHENTICATED', 'the ticket is from the future: the clocks differ', { details: { reason: 'ticket-early' } });
}

function assertUnused({ jti, exp }: TicketClaims, { guard, now }: VerifyTicketOptions): void {
  if (!guard.claim(jti, { expiresAt: exp * second, now }))
    throw new ControlError('REPLAYED', 'the ticket was used before', { details: { reason: 'ticket-used' } });
}

/**
 * The keys of a node's spec: one JWK a text (NodeSpec.access.jwks).
 *
 * @throws MALFORMED or UNSUPPORTED naming the key that is none of ours; two keys under one kid are none either
 */
export const parseTicketKeys = (jwks: readonly string[]): readonly PublicJwk[] =>
  parseJwks({ keys: jwks.map((text, at) => parseJsonObject(Buffer.from(text, 'utf8'), `jwks.keys[${at}]`)) }, 'sig');

/** What the spec carries of an issuer's keys. */
export const encodeTicketKeys = ({ keys }: { readonly keys: readonly JwkDocument[] }): string[] => keys.map((key) => JSON.stringify(key));

/**
 * A guard in memory: of one gateway, or of one daemon, whose own word is the one that counts (A-PKI-48). It holds the tickets of the
 * last minute; full, it takes none, for a guard that forgets is no guard.
 */
export function createTicketGuard({ maxTickets = 65_536 }: { readonly maxTickets?: number } = {}): TicketGuard {
  const used = new Map<string, number>();
  return {
    claim(jti, { expiresAt, now }) {
      const known = used.get(jti);
      if (known !== undefined && known > now) return false;
      if (known === undefined && used.size >= maxTickets) for (const [old, end] of used) if (end <= now) used.delete(old);
      if (known === undefined && used.size >= maxTickets)
        throw new ControlError('UNAVAILABLE', `${used.size} exec tickets of the last minute are remembered, no more can be`, {
          details: { reason: 'ticket-guard-full' },
        });
      used.set(jti, expiresAt);
      return true;
    },
  };
}
