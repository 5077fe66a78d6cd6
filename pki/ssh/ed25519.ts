/** Ed25519 (RFC 8032, RFC 8410) for the SSH authorities: keys and signatures in their one form. The mathematics is node's. */
import { createPublicKey, type KeyObject, verify } from 'node:crypto';
import { malformed } from './refusals.ts';

const spkiHead = Buffer.from('302a300506032b6570032100', 'hex');
const keyBytes = 32;
export const ed25519SignatureBytes = 64;

/** The key of a strict SubjectPublicKeyInfo; MALFORMED otherwise. */
export const ed25519KeyOf = (spki: Uint8Array): KeyObject => {
  if (spki.length !== spkiHead.length + keyBytes || Buffer.compare(spki.subarray(0, spkiHead.length), spkiHead) !== 0)
    throw malformed('spki', 'is not an Ed25519 public key of 44 bytes');
  try {
    // By its bytes: OpenSSL 3 takes many times as long to find out what a DER is.
    const x = Buffer.from(spki.subarray(spkiHead.length)).toString('base64url');
    return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
  } catch {
    throw malformed('spki', 'is not an Ed25519 public key');
  }
};

/** The same from the 32 bytes of the key alone. */
export const ed25519KeyOfBytes = (bytes: Uint8Array): KeyObject => ed25519KeyOf(Buffer.concat([spkiHead, bytes]));

/** True when the signature over the input is the key's; false for any other, of any length. */
export const verifyEd25519 = (key: KeyObject, input: Uint8Array, signature: Uint8Array): boolean =>
  signature.length === ed25519SignatureBytes && verify(null, input, key, signature);
