/** ECDH on P-256, with points and scalars in the one form that is taken: 65 bytes beginning with 04, and 32 bytes. */
import { createECDH, createPrivateKey, diffieHellman, type KeyObject } from 'node:crypto';
import { parseP256Spki, publicKeyOf, spkiOf } from '../x509/index.ts';
import { encodeBase64url } from './base64url.ts';
import { malformed } from './refusals.ts';

const spkiHead = Buffer.from('3059301306072a8648ce3d020106082a8648ce3d030107034200', 'hex');
const pointBytes = 65;
export const coordinateBytes = 32;

/** The SubjectPublicKeyInfo of an uncompressed point; MALFORMED for another form, or a point off the curve. */
export const spkiOfPoint = (point: Uint8Array, field: string): Uint8Array => {
  if (point.length !== pointBytes || point[0] !== 4) throw malformed(field, `is not an uncompressed P-256 point of ${pointBytes} bytes`);
  try {
    return parseP256Spki(Buffer.concat([spkiHead, point]));
  } catch {
    throw malformed(field, 'is not a point on P-256');
  }
};

/** The 65 bytes of a P-256 key's point. */
export const pointOf = (spki: Uint8Array): Uint8Array => parseP256Spki(spki).subarray(spkiHead.length);

/** The private key of a 32-byte scalar; MALFORMED when it is zero or not below the order. */
export const privateKeyOfScalar = (scalar: Uint8Array, field: string): KeyObject => {
  if (scalar.length !== coordinateBytes) throw malformed(field, `has ${scalar.length} bytes, not ${coordinateBytes}`);
  const ecdh = createECDH('prime256v1');
  try {
    ecdh.setPrivateKey(scalar);
  } catch {
    throw malformed(field, 'is not a scalar of P-256');
  }
  const point = ecdh.getPublicKey();
  const key = {
    kty: 'EC',
    crv: 'P-256',
    d: encodeBase64url(scalar),
    x: encodeBase64url(point.subarray(1, 33)),
    y: encodeBase64url(point.subarray(33)),
  };
  return createPrivateKey({ format: 'jwk', key });
};

/**
 * The x coordinate both sides come to: 32 bytes. MALFORMED for a loose public key, INVALID_INPUT for a private one of another
 * kind. P-256 has cofactor 1 and the point is proved to be on it, so no small subgroup is left to attack with.
 */
export const agree = (privateKey: KeyObject, spki: Uint8Array): Uint8Array => {
  spkiOf(privateKey);
  return diffieHellman({ privateKey, publicKey: publicKeyOf(spki) });
};
