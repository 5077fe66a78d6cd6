/**
 * Compact JWE (RFC 7516) in one algorithm pair: ECDH-ES+A256KW with A256GCM on P-256 (SEC-008, WID-035). What only the two ends
 * may agree on (request, instance, expiry) is bound as header members: the header is authenticated as it was received, so a
 * box made for another request does not open.
 *
 * Opening proves that the box was made for this key and these members, never who made it: anybody can seal to a public key.
 */
import { generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto';
import { spkiOf } from '../x509/index.ts';
import { gcmSizes, openGcm, sealGcm } from './aes-gcm.ts';
import { unwrapKey, wrapKey } from './aes-kw.ts';
import { decodeBase64url, decodeExactly, encodeBase64url } from './base64url.ts';
import { agree, coordinateBytes, pointOf, spkiOfPoint } from './ecdh.ts';
import { concatKdf } from './kdf.ts';
import { malformed, refusal, unsupported } from './refusals.ts';
import { assertMembers, findText, isJsonObject, type JsonObject, parseJsonObject } from './strict-json.ts';

const algorithm = 'ECDH-ES+A256KW';
const encryption = 'A256GCM';
/** The answer of the secret broker is the largest of them (BND-003). */
export const maxJweCharacters = 262_144;
/** Of the header alone: names and bound members are short, and it is read before anything is proved. */
const maxHeaderCharacters = 8_192;
const wrappedKeyBytes = gcmSizes.key + 8;
const maxPartyInfoBytes = 256;

export type BoundMembers = Readonly<Record<string, string | number>>;

const ownMembers = ['alg', 'enc', 'epk', 'kid', 'typ', 'apu', 'apv'];

/** Seals to a P-256 key. `bind` becomes header members that openJwe must be told again, exactly. */
export const sealJwe = (options: {
  readonly recipient: Uint8Array;
  readonly plaintext: Uint8Array;
  readonly typ: string;
  readonly bind?: BoundMembers;
  readonly random?: (size: number) => Uint8Array;
}): string => {
  const { recipient, plaintext, typ, bind = {}, random = randomBytes } = options;
  for (const name of Object.keys(bind))
    if (ownMembers.includes(name))
      throw refusal('INVALID_INPUT', `bind.${name}`, { reason: 'member', message: 'is a member of the format itself' });
  const ephemeral = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const header = encodeHeader({ epk: spkiOf(ephemeral.publicKey), typ, bind });
  if (header.length > maxHeaderCharacters)
    throw refusal('INVALID_INPUT', 'bind', {
      reason: 'too-large',
      message: `makes a header of more than ${maxHeaderCharacters} characters`,
    });
  const none = new Uint8Array();
  const kek = concatKdf({ secret: agree(ephemeral.privateKey, recipient), algorithm, apu: none, apv: none });
  const [key, iv] = [random(gcmSizes.key), random(gcmSizes.iv)];
  const { ciphertext, tag } = sealGcm({ key, iv, aad: Buffer.from(header, 'ascii') }, plaintext);
  const text = [header, ...[wrapKey(kek, key), iv, ciphertext, tag].map(encodeBase64url)].join('.');
  if (text.length <= maxJweCharacters) return text;
  throw refusal('INVALID_INPUT', 'plaintext', { reason: 'too-large', message: `makes a JWE of more than ${maxJweCharacters} characters` });
};

const encodeHeader = ({ epk, typ, bind }: { readonly epk: Uint8Array; readonly typ: string; readonly bind: BoundMembers }): string => {
  const point = pointOf(epk);
  const [x, y] = [encodeBase64url(point.subarray(1, 33)), encodeBase64url(point.subarray(33))];
  const header = { alg: algorithm, enc: encryption, epk: { kty: 'EC', crv: 'P-256', x, y }, typ, ...bind };
  return encodeBase64url(Buffer.from(JSON.stringify(header), 'utf8'));
};

export interface OpenedJwe {
  readonly header: { readonly kid: string | null; readonly typ: string | null };
  readonly plaintext: Uint8Array;
}

export interface OpenJweOptions {
  readonly privateKey: KeyObject;
  /** The kind of box that is expected; a box of any kind where it is not given. */
  readonly typ?: string;
  readonly bind?: BoundMembers;
  /** When both the key and the box name one, they must agree. */
  readonly kid?: string | null;
}

/**
 * Opens a compact JWE. MALFORMED (form, a member that is not read), UNSUPPORTED (another algorithm), PERMISSION_DENIED (`typ`,
 * `bound-member`: made for something else), UNAUTHENTICATED (`key-wrap`, `gcm-tag`: sealed to another key, or changed).
 */
export const openJwe = (text: string, options: OpenJweOptions): OpenedJwe => {
  const parts = splitCompact(text);
  const header = parseJsonObject(decodeBase64url(parts.header, 'jwe.header'), 'jwe.header');
  const epk = readHeader(header, options); //                                      1. our one algorithm pair, a key on the curve
  const names = readNames(header, options); //                                     2. the kind of box that was asked for
  assertBound(header, options.bind ?? {}); //                                      3. made for this request
  const wrapped = decodeExactly(parts.key, 'jwe.encrypted_key', wrappedKeyBytes); // 4. exact sizes
  const iv = decodeExactly(parts.iv, 'jwe.iv', gcmSizes.iv);
  const tag = decodeExactly(parts.tag, 'jwe.tag', gcmSizes.tag);
  const ciphertext = decodeBase64url(parts.ciphertext, 'jwe.ciphertext');
  const kek = concatKdf({ secret: agree(options.privateKey, epk), algorithm, ...partiesOf(header) });
  const key = unwrapKey(kek, wrapped); //                                          5. sealed to this key
  const plaintext = openGcm({ key, iv, aad: Buffer.from(parts.header, 'ascii'), ciphertext, tag }); // 6. and not changed
  return Object.freeze({ header: names, plaintext });
};

/** What the protected header says, before anything of it is proved: openJwe authenticates it. @throws MALFORMED */
export const readJweHeader = (text: string): JsonObject =>
  parseJsonObject(decodeBase64url(splitCompact(text).header, 'jwe.header'), 'jwe.header');

interface Parts {
  readonly header: string;
  readonly key: string;
  readonly iv: string;
  readonly ciphertext: string;
  readonly tag: string;
}

const splitCompact = (text: string): Parts => {
  if (text.length > maxJweCharacters) throw malformed('jwe', `has more than ${maxJweCharacters} characters`);
  const parts = text.split('.');
  if (parts.length !== 5) throw malformed('jwe', 'is not five parts between dots');
  const [header, key, iv, ciphertext, tag] = parts as [string, string, string, string, string];
  if (header.length > maxHeaderCharacters) throw malformed('jwe.header', `has more than ${maxHeaderCharacters} characters`);
  return { header, key, iv, ciphertext, tag };
};

/** Algorithms, members, and the sender's one-time key: its SubjectPublicKeyInfo. */
const readHeader = (header: JsonObject, { bind = {} }: OpenJweOptions): Uint8Array => {
  if (header['alg'] !== algorithm) throw unsupported('jwe.header.alg', `is not ${algorithm}`);
  if (header['enc'] !== encryption) throw unsupported('jwe.header.enc', `is not ${encryption}`);
  assertMembers(header, [...ownMembers, ...Object.keys(bind)], 'jwe.header');
  const epk = header['epk'];
  if (!isJsonObject(epk)) throw malformed('jwe.header.epk', 'is not a JSON object');
  assertMembers(epk, ['kty', 'crv', 'x', 'y'], 'jwe.header.epk');
  if (epk['kty'] !== 'EC' || epk['crv'] !== 'P-256') throw unsupported('jwe.header.epk', 'is not a P-256 key');
  const coordinates = (['x', 'y'] as const).map((name) => decodeExactly(epk[name], `jwe.header.epk.${name}`, coordinateBytes));
  return spkiOfPoint(Buffer.concat([Uint8Array.of(4), ...coordinates]), 'jwe.header.epk');
};

const readNames = (header: JsonObject, options: OpenJweOptions): OpenedJwe['header'] => {
  const names = { kid: findText(header, 'kid', 'jwe.header'), typ: findText(header, 'typ', 'jwe.header') };
  if (options.typ !== undefined && names.typ !== options.typ)
    throw refusal('PERMISSION_DENIED', 'jwe.header.typ', {
      reason: 'typ',
      message: `is ${names.typ === null ? 'absent' : JSON.stringify(names.typ)}, not ${options.typ}`,
    });
  if (names.kid !== null && typeof options.kid === 'string' && names.kid !== options.kid)
    throw refusal('PERMISSION_DENIED', 'jwe.header.kid', { reason: 'kid', message: 'names another key' });
  return Object.freeze(names);
};

const assertBound = (header: JsonObject, bind: BoundMembers): void => {
  for (const [name, value] of Object.entries(bind))
    if (!Object.hasOwn(header, name) || header[name] !== value)
      throw refusal('PERMISSION_DENIED', `jwe.header.${name}`, {
        reason: 'bound-member',
        message: 'is not what this box must be bound to',
      });
};

const partiesOf = (header: JsonObject): { readonly apu: Uint8Array; readonly apv: Uint8Array } => {
  const read = (name: 'apu' | 'apv'): Uint8Array => {
    const bytes = Object.hasOwn(header, name) ? decodeBase64url(header[name], `jwe.header.${name}`) : new Uint8Array();
    if (bytes.length > maxPartyInfoBytes) throw malformed(`jwe.header.${name}`, `has more than ${maxPartyInfoBytes} bytes`);
    return bytes;
  };
  return { apu: read('apu'), apv: read('apv') };
};
