/**
 * Bearer → principal. Two kinds: the operator token of this deployment, which may do everything (the development default), and, where an
 * issuer is configured, OIDC access tokens: signature, issuer, audience and time are proven before a claim is read.
 *
 *   bc_tenants      list of tenant ids, or "all"
 *   bc_permissions  list of permissions (principal.ts)
 *   act.sub         an agent that acts for the subject (RFC 8693); needs bc_delegation
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createLocalJWKSet, createRemoteJWKSet, errors, type JSONWebKeySet, type JWTPayload, jwtVerify } from 'jose';
import { ControlError } from '../domain/errors.ts';
import { assertBearer } from './bearer.ts';
import { type Permission, type Principal, permissions } from './principal.ts';

export interface OidcSettings {
  readonly issuer: string;
  readonly audience: string;
  /** https address, or the path of a file that an operator keeps up to date. */
  readonly jwks: string;
}

export interface IdentityOptions {
  readonly bearer: string;
  /** null: the operator token only. */
  readonly oidc: OidcSettings | null;
}

export interface Identity {
  /** @throws UNAUTHENTICATED; UNAVAILABLE while the issuer's keys cannot be had */
  authenticate(header: string | undefined): Promise<Principal>;
}

export const operatorPrincipal: Principal = Object.freeze({
  name: 'operator',
  kind: 'operator-token',
  tenants: 'all',
  permissions: 'all',
  agent: null,
  session: { id: 'operator-token', endsAt: null },
});

/** No symmetric ones: whoever could verify could forge. */
const algorithms = ['ES256', 'ES384', 'EdDSA', 'PS256', 'RS256'];
const clockToleranceSeconds = 30;

const refused = (reason: string, message: string, cause?: unknown): ControlError<'UNAUTHENTICATED'> =>
  new ControlError('UNAUTHENTICATED', message, { details: { reason }, ...(cause === undefined ? {} : { cause }) });

export function createIdentity({ bearer, oidc }: IdentityOptions): Identity {
  const verify = oidc === null ? null : createVerifier(oidc);
  return {
    async authenticate(header) {
      const token = /^Bearer +(\S+)$/i.exec(header ?? '')?.[1];
      if (verify !== null && token !== undefined && token.split('.').length === 3) return principalOf(await verify(token), token);
      assertBearer(header, bearer);
      return operatorPrincipal;
    },
  };
}

/** @throws INVALID_CONFIG for a key file that cannot be used */
function createVerifier({ issuer, audience, jwks }: OidcSettings): (token: string) => Promise<JWTPayload> {
  const keys = /^https?:/.test(jwks)
    ? createRemoteJWKSet(addressOf(jwks), { timeoutDuration: 5_000 })
    : createLocalJWKSet(readKeySet(jwks));
  return async (token) => {
    try {
      const options = { issuer, audience, algorithms, clockTolerance: clockToleranceSeconds, requiredClaims: ['exp', 'sub'] };
      return (await jwtVerify(token, keys, options)).payload;
    } catch (error) {
      if (error instanceof errors.JWTExpired) throw refused('token-expired', 'the access token has expired', error);
      if (error instanceof errors.JOSEError && !(error instanceof errors.JWKSTimeout))
        throw refused('bad-token', 'the access token is not one of this deployment’s issuer and audience', error);
      throw new ControlError('UNAVAILABLE', `the keys of ${issuer} cannot be read`, { details: { reason: 'issuer-keys' }, cause: error });
    }
  };
}

/** Whoever could change these keys on their way could be anybody here. */
function addressOf(jwks: string): URL {
  const url = URL.canParse(jwks) ? new URL(jwks) : null;
  if (url?.protocol === 'https:' || (url !== null && loopback.includes(url.hostname))) return url;
  throw new ControlError(
    'INVALID_CONFIG',
    `BETTER_COMPUTE_OIDC_JWKS: ${jwks.slice(0, 200)} is no https address: its keys would prove nothing`,
    { details: { reason: 'oidc' } },
  );
}

const loopback = ['127.0.0.1', '[::1]', 'localhost'];

function readKeySet(path: string): JSONWebKeySet {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as JSONWebKeySet;
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', `BETTER_COMPUTE_OIDC_JWKS: ${path} is no key set`, { details: { reason: 'oidc' }, cause });
  }
}

/** Names go into records and terminals as they are. */
const isName = (value: unknown): value is string => typeof value === 'string' && /^[\x21-\x7e]{1,128}$/.test(value);
const isList = (value: unknown): value is string[] => Array.isArray(value) && value.every(isName);

function principalOf(claims: JWTPayload, token: string): Principal {
  const { sub, act, bc_tenants: tenants, bc_permissions: held, bc_delegation: delegation } = claims as Record<string, unknown>;
  if (!isName(sub)) throw refused('bad-subject', 'the access token names no subject that a record can hold');
  if (tenants !== undefined && tenants !== 'all' && !isList(tenants))
    throw refused('bad-claims', 'bc_tenants is neither a list of tenants nor "all"');
  if (held !== undefined && !isList(held)) throw refused('bad-claims', 'bc_permissions is no list of permissions');
  return {
    name: sub,
    kind: 'oidc',
    tenants: (tenants as readonly string[] | 'all' | undefined) ?? [],
    permissions: permissions.filter((permission): permission is Permission => (held ?? []).includes(permission)),
    agent: agentOf(act, delegation),
    session: { id: sessionOf(token), endsAt: (claims.exp as number) * 1_000 },
  };
}

/** Of this very token: what a later one may do, it is asked for. */
const sessionOf = (token: string): string => createHash('sha256').update(token).digest('base64url').slice(0, 22);

function agentOf(act: unknown, delegationId: unknown): Principal['agent'] {
  if (act === undefined || act === null) return null;
  const name = (act as { sub?: unknown }).sub;
  if (isName(name) && isName(delegationId)) return { name, delegationId };
  throw refused(
    'bad-delegation',
    'the access token has an actor without a name, or without bc_delegation: what it does could not be recorded',
  );
}
