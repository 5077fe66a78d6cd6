/** Tokens, boxes, and the primitives below them: jws, jwe, jwk, aes-gcm, hkdf, aes-kw. */
import {
  hkdfSha256,
  openGcm,
  openJwe,
  type PublicJwk,
  parseJwks,
  parsePrivateJwk,
  parsePublicJwk,
  unwrapKey,
  verifyJws,
} from '../../../pki/jose/index.ts';
import { type Case, hexField, numberField, objectField, textField, toHex } from '../case.ts';

export const judgeAesGcm = (read: Case): string =>
  toHex(
    openGcm({
      key: hexField(read, 'key'),
      iv: hexField(read, 'iv'),
      aad: hexField(read, 'aad'),
      ciphertext: hexField(read, 'ct'),
      tag: hexField(read, 'tag'),
    }),
  );

export const judgeHkdf = (read: Case): string =>
  toHex(
    hkdfSha256({ ikm: hexField(read, 'ikm'), salt: hexField(read, 'salt'), info: hexField(read, 'info'), size: numberField(read, 'size') }),
  );

export const judgeAesKw = (read: Case): string => toHex(unwrapKey(hexField(read, 'key'), hexField(read, 'ct')));

/** One key, or a set of them. */
const verifyingKeys = (key: Case): readonly PublicJwk[] =>
  Object.hasOwn(key, 'keys') ? parseJwks(key, 'sig') : [parsePublicJwk(key, 'sig')];

/** The payload is the value. */
export const judgeJws = (read: Case): string =>
  toHex(verifyJws(textField(read, 'jws'), { keys: verifyingKeys(objectField(read, 'key')) }).payload);

/** The plaintext is the value. */
export const judgeJwe = (read: Case): string => {
  const { privateKey, kid } = parsePrivateJwk(objectField(read, 'key'), 'enc');
  return toHex(openJwe(textField(read, 'jwe'), { privateKey, kid }).plaintext);
};

/** Is this set fit to judge this token: the set that is published, or the only one there is. */
export const judgeJwk = (read: Case): string => {
  const group = objectField(read, 'group');
  const keys = parseJwks(
    Object.hasOwn(group, 'public') && group['public'] !== undefined ? objectField(group, 'public') : objectField(group, 'private'),
    'sig',
  );
  return toHex(verifyJws(textField(objectField(read, 'case'), 'jws'), { keys }).payload);
};
