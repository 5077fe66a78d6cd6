/**
 * Compact JWS (RFC 7515), ES256 and nothing else. The header is an allow-list: a key, a certificate or an address in it would
 * let the sender choose what judges him, and `crit` names rules that nobody here keeps.
 */
import type { Signer } from '../x509/index.ts';
import { rawSignatureBytes, verifyRawSignature } from '../x509/signature.ts';
import { decodeBase64url, decodeExactly, encodeBase64url } from './base64url.ts';
import { jwkThumbprint, type PublicJwk } from './jwk.ts';
import { malformed, refusal, unsupported } from './refusals.ts';
import { assertMembers, findText, type JsonObject, parseJsonObject } from './strict-json.ts';

export const maxJwsCharacters = 16_384;

/** Signs with a P-256 key behind the port; the kid is the thumbprint of its key. */
export const signJws = async (options: {
  readonly signer: Signer;
  readonly typ: string;
  readonly payload: Uint8Array;
}): Promise<string> => {
  const { signer, typ, payload } = options;
  const header = Buffer.from(JSON.stringify({ alg: 'ES256', kid: jwkThumbprint(signer.spki), typ }), 'utf8');
  const input = `${encodeBase64url(header)}.${encodeBase64url(payload)}`;
  const signature = await signer.sign(Buffer.from(input, 'ascii'));
  const text = `${input}.${encodeBase64url(signature)}`;
  // What a key service answered is proved before it leaves.
  verifyJws(text, { keys: [{ kid: jwkThumbprint(signer.spki), spki: signer.spki }], typ });
  return text;
};

export interface VerifiedJws {
  readonly header: { readonly kid: string | null; readonly typ: string | null };
  readonly payload: Uint8Array;
  /** Of the key that signed. */
  readonly spki: Uint8Array;
}

/**
 * Verifies a compact JWS under the keys of one set. MALFORMED (form, header), UNSUPPORTED (`jws.header.alg`), BAD_SIGNATURE
 * (`unknown-key`, `bad-signature`), PERMISSION_DENIED (`typ`: a token of another kind). Says nothing about claims or time.
 */
export const verifyJws = (text: string, options: { readonly keys: readonly PublicJwk[]; readonly typ?: string }): VerifiedJws => {
  const [encodedHeader, encodedPayload, encodedSignature] = splitCompact(text);
  const header = readHeader(encodedHeader); //                                  1. ES256, and no member that steers
  assertTyp(header.typ, options.typ); //                                        2. a token of the kind that was asked for
  const payload = decodeBase64url(encodedPayload, 'jws.payload'); //            3. one text for one token
  const signature = decodeExactly(encodedSignature, 'jws.signature', rawSignatureBytes);
  const { spki } = keyFor(header.kid, options.keys); //                         4. exactly one key is meant
  const input = Buffer.from(`${encodedHeader}.${encodedPayload}`, 'ascii');
  if (!verifyRawSignature({ spki, input, signature }))
    //                       5. and it signed these very bytes
    throw refusal('BAD_SIGNATURE', 'jws.signature', { reason: 'bad-signature', message: 'is not by the key it names' });
  return Object.freeze({ header, payload, spki });
};

const splitCompact = (text: string): readonly [string, string, string] => {
  if (text.length > maxJwsCharacters) throw malformed('jws', `has more than ${maxJwsCharacters} characters`);
  const parts = text.split('.');
  if (parts.length !== 3) throw malformed('jws', 'is not three parts between dots');
  return parts as unknown as readonly [string, string, string];
};

const readHeader = (encoded: string): VerifiedJws['header'] => {
  const header: JsonObject = parseJsonObject(decodeBase64url(encoded, 'jws.header'), 'jws.header');
  if (header['alg'] !== 'ES256') throw unsupported('jws.header.alg', 'is not ES256');
  assertMembers(header, ['alg', 'kid', 'typ'], 'jws.header');
  return Object.freeze({ kid: findText(header, 'kid', 'jws.header'), typ: findText(header, 'typ', 'jws.header') });
};

const assertTyp = (typ: string | null, expected: string | undefined): void => {
  if (expected !== undefined && typ !== expected)
    throw refusal('PERMISSION_DENIED', 'jws.header.typ', {
      reason: 'typ',
      message: `is ${typ === null ? 'absent' : JSON.stringify(typ)}, not ${expected}`,
    });
};

/** By kid; a token without one is taken only where there is no choice. */
const keyFor = (kid: string | null, keys: readonly PublicJwk[]): PublicJwk => {
  const found = kid === null ? keys : keys.filter((key) => key.kid === kid);
  if (found.length === 1) return found[0] as PublicJwk;
  throw refusal('BAD_SIGNATURE', 'jws.header.kid', {
    reason: 'unknown-key',
    message: kid === null ? `is absent, and there are ${keys.length} keys` : 'names no key of the set, or several',
  });
};
