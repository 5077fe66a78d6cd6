/** Who issues exec tickets: the api, with the bundle's exec ticket key (EXEC-001 to EXEC-005, EXEC-007, EXEC-008, KEY-033, KEY-038). */
import { randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { newSigningKey } from '../bundle/create.ts';
import type { PkiBundle, SigningKey } from '../bundle/types.ts';
import { encodeBase64url, encodePublicJwk, type JwkDocument, jwkThumbprint, signJws } from '../jose/index.ts';
import { maxTicketSeconds, parseTicketIssuer, type TicketSubject, ticketClaims, ticketType } from './claims.ts';

export interface ExecTicketIssuerOptions {
  /** The origin of the api's base URL: the api takes tickets of no other issuer (EXEC-009). */
  readonly issuer: string;
  /** Unix milliseconds. */
  readonly now?: () => number;
  readonly random?: (bytes: number) => Uint8Array;
}

export interface IssuedTicket {
  /** Compact JWS. */
  readonly ticket: string;
  readonly jti: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
}

const jtiBytes = 16;

export class ExecTicketIssuer {
  readonly issuer: string;
  #current: SigningKey;
  #listed: readonly Uint8Array[];
  readonly #now: () => number;
  readonly #random: (bytes: number) => Uint8Array;

  /** @throws INVALID_CONFIG (ticket-issuer) */
  constructor(keys: { readonly current: SigningKey; readonly others?: readonly Uint8Array[] }, options: ExecTicketIssuerOptions) {
    const { issuer, now = Date.now, random = randomBytes } = options;
    this.issuer = parseTicketIssuer(issuer);
    this.#current = keys.current;
    this.#listed = keys.others ?? [];
    this.#now = now;
    this.#random = random;
  }

  /** The thumbprint of the key that signs: the same in every process that holds the key (EXEC-007). */
  get kid(): string {
    return jwkThumbprint(this.#current.spki);
  }

  /** What gateway and nodes verify by: the key that signs, then the others that are listed. */
  jwks(): { readonly keys: readonly JwkDocument[] } {
    return { keys: [this.#current.spki, ...this.#listed].map((spki) => encodePublicJwk(spki, 'sig')) };
  }

  /**
   * One ticket for one tunnel on one node. Whether the caller may have it was decided before (EXEC-005).
   *
   * @throws INVALID_INPUT for a subject that no ticket can name, or a life that is not 1 to 60 s; INVALID_STATE (key-offline)
   */
  async issue(subject: TicketSubject & { readonly lifetimeSeconds?: number }): Promise<IssuedTicket> {
    const { lifetimeSeconds = maxTicketSeconds } = subject;
    const jti = encodeBase64url(this.#random(jtiBytes));
    const claims = ticketClaims(subject, { issuer: this.issuer, now: this.#now(), lifetimeSeconds, jti });
    const ticket = await signJws({ signer: this.#current.signer(), typ: ticketType, payload: Buffer.from(JSON.stringify(claims), 'utf8') });
    return { ticket, jti, expiresAt: claims.exp * second };
  }

  /**
   * Signs with another key from now on; the one before stays listed, so that its tickets verify until they are over (EXEC-008). In a
   * deployment the key comes from the bundle, where every process reads it; without one a new key is made and handed back.
   */
  rotate(next: SigningKey = newSigningKey('execTicketKey')): SigningKey {
    if (jwkThumbprint(next.spki) === this.kid) return next;
    this.#listed = [this.#current.spki, ...this.#listed.filter((spki) => jwkThumbprint(spki) !== jwkThumbprint(next.spki))].slice(0, 2);
    this.#current = next;
    return next;
  }
}

/** @throws INVALID_CONFIG: no-exec-ticket-key for a bundle made before there was one (KEY-038), ticket-issuer */
export function execTicketIssuer(bundle: PkiBundle, options: ExecTicketIssuerOptions): ExecTicketIssuer {
  const { execTicketKey } = bundle;
  if (execTicketKey === undefined)
    throw new ControlError('INVALID_CONFIG', 'the key bundle has no exec ticket key: it was made before there was one', {
      details: { reason: 'no-exec-ticket-key' },
    });
  // What nodes must know before it signs, and what they must know until its last ticket is over.
  const others = [bundle.execTicketKeyNext, bundle.execTicketKeyFormer].flatMap((key) => (key === undefined ? [] : [key.spki]));
  return new ExecTicketIssuer({ current: execTicketKey, others }, options);
}
