/**
 * ECDSA P-256 signatures: raw r‖s (64 bytes) everywhere of ours, DER ECDSA-Sig-Value inside certificates and requests.
 * Both forms are converted strictly, so that one signature has exactly one encoding of each. (r, n−s) still verifies:
 * whoever keeps a replay cache keys it by the signed statement, never by the signature.
 */
import { type KeyObject, verify } from 'node:crypto';
import { DerReader, tags } from './der-reader.ts';
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

/** Where the shortest form of the 32-octet integer at `at` begins; one octet before it when a sign octet must stand there. */
const integerStart = (raw: Uint8Array, at: number): number => {
  let start = at;
  while (raw[start] === 0) start += 1;
  return (raw[start] as number) >= 0x80 ? start - 1 : start;
};

const writeInteger = (out: Uint8Array, raw: Uint8Array, { at, start, end }: { at: number; start: number; end: number }): void => {
  out[at] = tags.integer;
  out[at + 1] = end - start;
  for (let i = start; i < end; i++) out[at + 2 + i - start] = raw[i] as number;
};

/** DER ECDSA-Sig-Value of a raw signature; MALFORMED when it is none. In one piece: every issued certificate passes here. */
export const derFromRawSignature = (raw: Uint8Array): Uint8Array => {
  assertRawSignature(raw);
  const [r, s] = [integerStart(raw, 0), integerStart(raw, 32)];
  const out = Buffer.allocUnsafe(6 + 32 - r + 64 - s);
  out[0] = tags.sequence;
  out[1] = out.length - 2;
  writeInteger(out, raw, { at: 2, start: r, end: 32 });
  writeInteger(out, raw, { at: 4 + 32 - r, start: s, end: 64 });
  // A sign octet of s would have been copied from the end of r, and one of r from before the beginning.
  if (r < 0) out[4] = 0;
  if (s < 32) out[6 + 32 - r] = 0;
  return out;
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
