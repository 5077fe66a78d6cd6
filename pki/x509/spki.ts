/**
 * Public keys in their one accepted form: an ECDSA P-256 SubjectPublicKeyInfo with the named curve and the uncompressed
 * point, 91 bytes, the point on the curve (H-09, H-19). node:crypto also takes compressed points, explicit curve parameters
 * and trailing bytes; a pin or key id over such a variant would differ from the pin of the same key, so none gets past here.
 */
import { createHash, createPublicKey, hash, type KeyObject } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { malformed } from './malformed.ts';

/** SEQUENCE { SEQUENCE { id-ecPublicKey, prime256v1 }, BIT STRING (66 bytes, none unused) }, then 04. */
const prefix = Buffer.from('3059301306072a8648ce3d020106082a8648ce3d03010703420004', 'hex');
const spkiBytes = 91;
const pointAt = 26;

const p = 0xffffffff00000001000000000000000000000000ffffffffffffffffffffffffn;
const b = 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn;

const isOnCurve = (spki: Uint8Array): boolean => {
  const hex = Buffer.from(spki.buffer, spki.byteOffset + pointAt + 1, 64).toString('hex');
  const x = BigInt(`0x${hex.slice(0, 64)}`);
  const y = BigInt(`0x${hex.slice(64)}`);
  return x < p && y < p && (y * y - (x * x - 3n) * x - b) % p === 0n;
};

const hasSpkiForm = (der: Uint8Array): boolean => der.length === spkiBytes && prefix.every((byte, at) => der[at] === byte);

/** MALFORMED unless the bytes have the form; does not look at the point. */
export const assertSpkiForm = (der: Uint8Array): void => {
  if (der.length !== spkiBytes) throw malformed('spki', `a P-256 public key has ${spkiBytes} bytes, not ${der.length}`);
  for (let i = 0; i < prefix.length; i++)
    if (der[i] !== prefix[i]) throw malformed('spki', 'a public key is not P-256 with the named curve and an uncompressed point');
};

const proven = new WeakSet<Uint8Array>();

/** A private copy of a strict P-256 SubjectPublicKeyInfo, its point on the curve; MALFORMED otherwise. */
export const parseP256Spki = (der: Uint8Array): Uint8Array => {
  const copy = Uint8Array.from(der);
  assertSpkiForm(copy);
  if (!isOnCurve(copy)) throw malformed('spki', 'the point of a public key is not on P-256');
  proven.add(copy);
  return copy;
};

/**
 * The same for a key that is used next: reading it proves its point, and the key is kept with the copy. What a request is signed by is
 * neither proven nor read twice.
 */
export const parseUsedP256Spki = (der: Uint8Array): Uint8Array => {
  const copy = Uint8Array.from(der);
  assertSpkiForm(copy);
  keys.set(copy, keyOfForm(copy));
  proven.add(copy);
  return copy;
};

/** MALFORMED unless strict and on the curve. What parseP256Spki handed out (a request's key) is not put to the proof again. */
export const assertP256Spki = (spki: Uint8Array): void => {
  assertSpkiForm(spki);
  if (!proven.has(spki) && !isOnCurve(spki)) throw malformed('spki', 'the point of a public key is not on P-256');
};

/**
 * The key of bytes that have the form; MALFORMED when their point is not on the curve, which node:crypto proves. By its coordinates:
 * OpenSSL 3 takes nearly twice as long to find out what a DER is.
 */
export const keyOfForm = (spki: Uint8Array): KeyObject => {
  const bytes = Buffer.from(spki.buffer, spki.byteOffset, spki.byteLength);
  const [x, y] = [bytes.toString('base64url', pointAt + 1, pointAt + 33), bytes.toString('base64url', pointAt + 33)];
  try {
    return createPublicKey({ key: { kty: 'EC', crv: 'P-256', x, y }, format: 'jwk' });
  } catch {
    throw malformed('spki', 'the point of a public key is not on P-256');
  }
};

/** Keys of what parseP256Spki handed out: private copies, which nobody writes to. */
const keys = new WeakMap<Uint8Array, KeyObject>();

/** The key of a strict SubjectPublicKeyInfo; MALFORMED otherwise. */
export const publicKeyOf = (spki: Uint8Array): KeyObject => {
  const known = keys.get(spki);
  if (known !== undefined) return known;
  assertSpkiForm(spki);
  const key = keyOfForm(spki);
  if (proven.has(spki)) keys.set(spki, key);
  return key;
};

/**
 * The public half as a key object that shares nothing with the one it came from.
 *
 * Reading the curve or the coordinates of a key locks it and allocates. A key that node generated shares its lock with the job that
 * generated it, and the job takes that lock when it is collected: when the collection comes in that very allocation, the
 * process waits for itself for ever (node 20; seen). An export of the DER holds no lock.
 */
export const unsharedPublicKey = (key: KeyObject): KeyObject => {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  return createPublicKey({ key: publicKey.export({ format: 'der', type: 'spki' }), format: 'der', type: 'spki' });
};

/** The 91 bytes of a P-256 key, public or private; INVALID_INPUT for another kind of key. */
export const spkiOf = (key: KeyObject): Uint8Array => {
  const spki = findSpki(key);
  if (spki !== undefined) return spki;
  throw new ControlError('INVALID_INPUT', `a P-256 key is needed, not ${key.asymmetricKeyType ?? key.type}`, {
    details: { reason: 'not-p256' },
  });
};

/** As spkiOf; undefined for another kind of key. */
export const findSpki = (key: KeyObject): Uint8Array | undefined => {
  if (key.asymmetricKeyType !== 'ec') return undefined;
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  const der = publicKey.export({ format: 'der', type: 'spki' });
  if (hasSpkiForm(der)) return parseP256Spki(der);
  // An export keeps the form in which the key came (compressed, explicit curve): its coordinates do not.
  const copy = unsharedPublicKey(publicKey);
  if (copy.asymmetricKeyDetails?.namedCurve !== 'prime256v1') return undefined;
  const { x = '', y = '' } = copy.export({ format: 'jwk' });
  return parseP256Spki(Buffer.concat([prefix, Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]));
};

/** The 65 bytes of the point: what SKI and AKI hash. */
export const pointOf = (spki: Uint8Array): Uint8Array => spki.subarray(pointAt);

/** SHA-1 over the point (RFC 5280 4.2.1.2, method 1), in lower-case hex. A name for the key, not a protection. */
export const keyIdentifierOf = (spki: Uint8Array): string => hash('sha1', pointOf(spki), 'hex');

/** `sha256/<base64>` over the SubjectPublicKeyInfo: what operators compare and daemons pin. MALFORMED for a loose key. */
export const spkiPin = (spki: Uint8Array): string => `sha256/${createHash('sha256').update(parseP256Spki(spki)).digest('base64')}`;

/** True for the exact text spkiPin writes: 32 bytes, canonical padded base64. */
export const isSpkiPin = (text: string): boolean => {
  if (!text.startsWith('sha256/')) return false;
  const digest = Buffer.from(text.slice(7), 'base64');
  return digest.length === 32 && digest.toString('base64') === text.slice(7);
};

/** Lower-case hex SHA-256 of the SubjectPublicKeyInfo: the key's id in signatures and sets. MALFORMED for a loose key. */
export const kidOf = (spki: Uint8Array): string => {
  assertP256Spki(spki);
  return hash('sha256', spki, 'hex');
};
