/**
 * ECDSA P-256 signatures: raw r‖s (64 bytes) everywhere of ours, DER ECDSA-Sig-Value inside certificates and requests.
 * Both forms are converted strictly, so that one signature has exactly one encoding of each. (r, n−s) still verifies:
 * whoever keeps a replay cache keys it by the signed statement, never by the signature.
 */
import { verify, type KeyObject } from 'node:crypto';
import { DerReader, tags } from './der-reader.ts';
import { encodeDerInteger, encodeDerSequence } from './der-writer.ts';
import { malformed } from './malformed.ts';
import { publicKeyOf } from './spki.ts';

export const rawSignatureBytes = 64;

const order = Buffer.from('ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551', 'hex');

/** 0 < value < n, for 32 octets from `at`. */
const isScalar = (raw: Uint8Array, at: number): boolean => {
  let isZero = true;
  let isBelow = false;
  for (let i = 0; i < 32; i++) {
    const octet = raw[at + i] as number;
    const bound = order[i] as number;
    if (!isBelow && octet > bound) return false;
    isBelow ||= octet < bound;
    isZero &&= octet === 0;
  }
  return isBelow && !isZero;
};

/** MALFORMED unless the bytes are r‖s with both in [1, n−1]. */
export const assertRawSignature = (raw: Uint8Array): void => {
  if (raw.length !== rawSignatureBytes) throw malformed('signature', `a raw signature has ${rawSignatureBytes} bytes, not ${raw.length}`);
  if (!isScalar(raw, 0) || !isScalar(raw, 32)) throw malformed('signature', 'a signature value is out of range');
};

/** DER ECDSA-Sig-Value of a raw signature; MALFORMED when it is none. */
export const derFromRawSignature = (raw: Uint8Array): Uint8Array => {
  assertRawSignature(raw);
  return encodeDerSequence(encodeDerInteger(raw.subarray(0, 32)), encodeDerInteger(raw.subarray(32)));
};

/** Raw r‖s of a DER ECDSA-Sig-Value; MALFORMED for BER, trailing bytes and values out of range. */
export const rawFromDerSignature = (der: Uint8Array): Uint8Array => {
  const outer = new DerReader(der);
  const inner = outer.open(tags.sequence);
  outer.close();
  const raw = new Uint8Array(rawSignatureBytes);
  for (const at of [0, 32]) {
    const content = inner.readInteger();
    const value = content[0] === 0 ? content.subarray(1) : content;
    if ((content[0] as number) >= 0x80 || value.length > 32) throw malformed('signature', 'a signature value is out of range');
    raw.set(value, at + 32 - value.length);
  }
  inner.close();
  assertRawSignature(raw);
  return raw;
};

/** True when the raw signature over SHA-256 of the input is the key's. False for any wrong length or value. */
export const verifyRaw = (key: KeyObject, input: Uint8Array, signature: Uint8Array): boolean =>
  signature.length === rawSignatureBytes && verify('sha256', input, { key, dsaEncoding: 'ieee-p1363' }, signature);

/** The same with a strict SubjectPublicKeyInfo; MALFORMED when the key is loose. */
export const verifyRawSignature = (options: {
  readonly spki: Uint8Array;
  readonly input: Uint8Array;
  readonly signature: Uint8Array;
}): boolean => verifyRaw(publicKeyOf(options.spki), options.input, options.signature);
