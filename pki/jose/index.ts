/**
 * JOSE for one private deployment: exec tickets and workload tokens as JWS, secrets and tokens sealed as JWE, and the
 * primitives below them, on node:crypto.
 *
 * Invariants
 * - One algorithm for each job: ES256 signs, ECDH-ES+A256KW with A256GCM seals, both on P-256. There is nothing to negotiate.
 * - One text for one token: canonical base64url, three or five parts, no JSON serialisation, no member twice.
 * - Headers are allow-lists; nothing in one chooses a key, a rule or a place to fetch from.
 * - The received bytes are what is authenticated, never a re-encoding.
 * - Refusals are ControlErrors that name the field (`details.field`); none contains a key, a payload or a plaintext.
 *
 * Threat model: the token, every key set but our own, and the order in which they come are an attacker's. He must not get a
 * token of one kind taken as another, a symmetric key made of a public one, a key of his own choosing, or a point off the curve.
 *
 * Not done here: claims and time (whoever issues a kind of token checks them), replay caches, fetching key sets.
 */
export { type GcmBox, gcmSizes, openGcm, type Sealed, sealGcm } from './aes-gcm.ts';
export { unwrapKey, wrapKey } from './aes-kw.ts';
export { decodeBase64url, encodeBase64url } from './base64url.ts';
export { agree, pointOf, privateKeyOfScalar, spkiOfPoint } from './ecdh.ts';
export { type BoundMembers, maxJweCharacters, type OpenedJwe, type OpenJweOptions, openJwe, readJweHeader, sealJwe } from './jwe.ts';
export {
  encodePublicJwk,
  type JwkDocument,
  type JwkUse,
  jwkThumbprint,
  type PrivateJwk,
  type PublicJwk,
  parseJwks,
  parsePrivateJwk,
  parsePublicJwk,
} from './jwk.ts';
export { maxJwsCharacters, signJws, type VerifiedJws, verifyJws } from './jws.ts';
export { concatKdf, hkdfSha256 } from './kdf.ts';
export { isJsonObject, type JsonObject, parseJsonObject } from './strict-json.ts';
