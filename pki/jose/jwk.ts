/**
 * JSON Web Keys (RFC 7517): P-256, for one job each. A key that says what it is for is used for nothing else; a public key
 * that carries private members is refused, not trimmed, because somebody published a secret.
 */
import { createHash, type KeyObject } from 'node:crypto';
import { spkiOf } from '../x509/index.ts';
import { decodeExactly, encodeBase64url } from './base64url.ts';
import { coordinateBytes, pointOf, privateKeyOfScalar, spkiOfPoint } from './ecdh.ts';
import { malformed, refusal, unsupported } from './refusals.ts';
import { assertMembers, findText, isJsonObject, type JsonObject } from './strict-json.ts';

/** The two jobs: ES256 signatures, and boxes sealed with ECDH-ES+A256KW. */
export type JwkUse = 'sig' | 'enc';

const algorithms: Readonly<Record<JwkUse, string>> = Object.freeze({ sig: 'ES256', enc: 'ECDH-ES+A256KW' });

/** What `key_ops` may say beside `use`: the half of the job that this half of the key does. */
const operations: Readonly<Record<JwkUse, Readonly<Record<'public' | 'private', readonly string[]>>>> = Object.freeze({
  sig: { public: ['verify'], private: ['sign'] },
  enc: { public: [], private: ['deriveKey', 'deriveBits'] },
});

export interface PublicJwk {
  readonly kid: string | null;
  readonly spki: Uint8Array;
}

export interface PrivateJwk extends PublicJwk {
  readonly privateKey: KeyObject;
}

const publicMembers = ['kty', 'crv', 'x', 'y', 'kid', 'use', 'alg', 'key_ops'];
const maxKeys = 64;

/** MALFORMED naming the member, or UNSUPPORTED for another kind, curve, use or algorithm. */
export const parsePublicJwk = (value: unknown, use: JwkUse, field = 'jwk'): PublicJwk => {
  const jwk = assertObject(value, field);
  if (Object.hasOwn(jwk, 'd'))
    throw refusal('MALFORMED', `${field}.d`, { reason: 'private-key', message: 'is the private half of a key that must be public' });
  return readPublic(jwk, { use, half: 'public', field });
};

/** The same for a key with its private half; MALFORMED also when the halves do not belong together. */
export const parsePrivateJwk = (value: unknown, use: JwkUse, field = 'jwk'): PrivateJwk => {
  const { d, ...jwk } = assertObject(value, field);
  const { kid, spki } = readPublic(jwk, { use, half: 'private', field });
  const privateKey = privateKeyOfScalar(decodeExactly(d, `${field}.d`, coordinateBytes), `${field}.d`);
  if (!Buffer.from(spkiOf(privateKey)).equals(spki)) throw malformed(`${field}.d`, 'is not the private half of x and y');
  return Object.freeze({ kid, spki, privateKey });
};

const assertObject = (value: unknown, field: string): JsonObject => {
  if (!isJsonObject(value)) throw malformed(field, 'is not a JSON object');
  return value;
};

interface Reading {
  readonly use: JwkUse;
  readonly half: 'public' | 'private';
  readonly field: string;
}

const readPublic = (jwk: JsonObject, reading: Reading): PublicJwk => {
  const { field } = reading;
  if (jwk['kty'] !== 'EC') throw unsupported(`${field}.kty`, 'is not EC');
  if (jwk['crv'] !== 'P-256') throw unsupported(`${field}.crv`, 'is not P-256');
  assertMembers(jwk, publicMembers, field);
  assertJob(jwk, reading);
  const kid = findText(jwk, 'kid', field);
  const [x, y] = [decodeExactly(jwk['x'], `${field}.x`, coordinateBytes), decodeExactly(jwk['y'], `${field}.y`, coordinateBytes)];
  return Object.freeze({ kid, spki: spkiOfPoint(Buffer.concat([Uint8Array.of(4), x, y]), field) });
};

const assertJob = (jwk: JsonObject, { use, half, field }: Reading): void => {
  if (Object.hasOwn(jwk, 'use') && jwk['use'] !== use) throw unsupported(`${field}.use`, `is not ${use}`);
  if (Object.hasOwn(jwk, 'alg') && jwk['alg'] !== algorithms[use]) throw unsupported(`${field}.alg`, `is not ${algorithms[use]}`);
  if (!Object.hasOwn(jwk, 'key_ops')) return;
  const ops: unknown = jwk['key_ops'];
  const allowed = operations[use][half];
  if (!Array.isArray(ops) || new Set(ops).size !== ops.length || !ops.every((op) => allowed.includes(op as string)))
    throw unsupported(`${field}.key_ops`, `says more than ${allowed.length === 0 ? 'nothing' : allowed.join(', ')}`);
};

/**
 * The keys of a set `{"keys": [...]}`, each with a kid of its own: two keys under one kid, or a key without one beside others,
 * would leave to chance which of them is meant. MALFORMED, or UNSUPPORTED, for the first key that is not one of ours.
 */
export const parseJwks = (value: unknown, use: JwkUse, field = 'jwks'): readonly PublicJwk[] => {
  const entries = assertEntries(value, field);
  const keys = entries.map((entry, i) => parsePublicJwk(entry, use, `${field}.keys[${i}]`));
  assertKids(keys, field);
  return Object.freeze(keys);
};

const assertEntries = (value: unknown, field: string): readonly unknown[] => {
  const set = assertObject(value, field);
  assertMembers(set, ['keys'], field);
  const entries: unknown = set['keys'];
  if (!Array.isArray(entries) || entries.length > maxKeys) throw malformed(`${field}.keys`, `is not a list of at most ${maxKeys} keys`);
  return entries;
};

const assertKids = (keys: readonly PublicJwk[], field: string): void => {
  const seen = new Set<string>();
  for (const [i, { kid }] of keys.entries()) {
    if (kid === null && keys.length > 1) throw malformed(`${field}.keys[${i}].kid`, 'is missing beside other keys');
    if (kid !== null && seen.has(kid)) throw malformed(`${field}.keys[${i}].kid`, 'stands twice in the set');
    if (kid !== null) seen.add(kid);
  }
};

export interface JwkDocument {
  readonly kty: 'EC';
  readonly crv: 'P-256';
  readonly x: string;
  readonly y: string;
  readonly kid: string;
  readonly use: JwkUse;
  readonly alg: string;
}

const coordinatesOf = (spki: Uint8Array): { readonly x: string; readonly y: string } => {
  const point = pointOf(spki);
  return { x: encodeBase64url(point.subarray(1, 33)), y: encodeBase64url(point.subarray(33)) };
};

/** The public JWK of a P-256 key for one job, under its thumbprint. MALFORMED for a loose key. */
export const encodePublicJwk = (spki: Uint8Array, use: JwkUse): JwkDocument =>
  Object.freeze({ kty: 'EC', crv: 'P-256', ...coordinatesOf(spki), kid: jwkThumbprint(spki), use, alg: algorithms[use] });

/** RFC 7638: SHA-256 over the members that make the key, in their order. Every process derives the same kid from a key (EXEC-007). */
export const jwkThumbprint = (spki: Uint8Array): string => {
  const { x, y } = coordinatesOf(spki);
  return createHash('sha256')
    .update(JSON.stringify({ crv: 'P-256', kty: 'EC', x, y }))
    .digest('base64url');
};
