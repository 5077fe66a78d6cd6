/**
 * Public areas of TPM keys (TPM2B_PUBLIC): endorsement keys and attestation keys, ECC P-256 or RSA 2048 with exponent 65537, named by
 * SHA-256. Other forms exist; none of them is needed to identify a machine, so none is taken.
 *
 * The name of an object is the digest of its public area, attributes and all. Whatever a TPM does for a name it does for exactly these
 * attributes: a key that may leave its TPM has another name.
 */
import { createHash, createPublicKey, type KeyObject } from 'node:crypto';
import { spkiOfPoint } from '../jose/index.ts';
import { publicKeyOf } from '../x509/index.ts';
import { type Attribute, algorithms, attributes, curveP256 } from './algorithms.ts';
import { malformed, refused } from './refusals.ts';
import { readWholeSized, showU16, TpmReader, u16 } from './wire.ts';

export interface TpmPublic {
  readonly type: 'ecc' | 'rsa';
  /** TPMA_OBJECT. */
  readonly attributes: number;
  /** The key encrypts for its children with AES-128 in CFB mode, as every endorsement key does. */
  readonly encryptsChildren: boolean;
  /** DER SubjectPublicKeyInfo. */
  readonly spki: Uint8Array;
  readonly key: KeyObject;
  /** 000b and the SHA-256 of the public area. */
  readonly name: Uint8Array;
}

/** Of an RSA 2048 key with a policy; ours have 122 and 314 bytes. */
export const maxPublicBytes = 512;

const rsaBits = 2048;
const aesBits = 128;

/** @throws MALFORMED for another form than the header names */
export function parseTpmPublic(bytes: Uint8Array, field: string): TpmPublic {
  const area = readWholeSized(Uint8Array.from(bytes), field, maxPublicBytes);
  const reader = new TpmReader(area, field);
  const type = typeOf(reader.readU16('type'), field);
  reader.expectU16('nameAlg', algorithms.sha256);
  const held = reader.readU32('objectAttributes');
  reader.readSized('authPolicy', 64);
  const encryptsChildren = readSymmetric(reader, field);
  readScheme(reader, field);
  const read = type === 'ecc' ? readEcc(reader, field) : readRsa(reader, field);
  reader.close();
  const name = Buffer.concat([u16(algorithms.sha256), createHash('sha256').update(area).digest()]);
  return Object.freeze({ type, attributes: held, encryptsChildren, name, ...read });
}

function typeOf(value: number, field: string): TpmPublic['type'] {
  if (value === algorithms.ecc) return 'ecc';
  if (value === algorithms.rsa) return 'rsa';
  throw malformed(`${field}.type`, `is ${showU16(value)}, neither ECC nor RSA`);
}

function readSymmetric(reader: TpmReader, field: string): boolean {
  const algorithm = reader.readU16('symmetric');
  if (algorithm === algorithms.null) return false;
  if (algorithm !== algorithms.aes) throw malformed(`${field}.symmetric`, `is ${showU16(algorithm)}, not AES`);
  reader.expectU16('symmetric.keyBits', aesBits);
  reader.expectU16('symmetric.mode', algorithms.cfb);
  return true;
}

/** ECDSA or RSASSA with SHA-256, or none; which of them fits the key is told by its signatures. */
function readScheme(reader: TpmReader, field: string): void {
  const scheme = reader.readU16('scheme');
  if (scheme === algorithms.null) return;
  if (scheme !== algorithms.ecdsa && scheme !== algorithms.rsassa)
    throw malformed(`${field}.scheme`, `is ${showU16(scheme)}, neither ECDSA nor RSASSA`);
  reader.expectU16('scheme.hash', algorithms.sha256);
}

type Key = Pick<TpmPublic, 'spki' | 'key'>;

function readEcc(reader: TpmReader, field: string): Key {
  reader.expectU16('curve', curveP256);
  reader.expectU16('kdf', algorithms.null);
  const [x, y] = [readCoordinate(reader, field, 'x'), readCoordinate(reader, field, 'y')];
  const spki = spkiOf(Buffer.concat([Buffer.from([4]), x, y]), field);
  return { spki, key: publicKeyOf(spki) };
}

function spkiOf(point: Uint8Array, field: string): Uint8Array {
  try {
    return spkiOfPoint(point, 'point');
  } catch {
    throw malformed(`${field}.point`, 'is not a point on P-256');
  }
}

/** Some TPMs leave leading zeros away. */
export function readCoordinate(reader: TpmReader, field: string, name: string): Buffer {
  const bytes = reader.readSized(name, 32);
  if (bytes.length === 0) throw malformed(`${field}.${name}`, 'is empty');
  return Buffer.concat([Buffer.alloc(32 - bytes.length), bytes]);
}

function readRsa(reader: TpmReader, field: string): Key {
  reader.expectU16('keyBits', rsaBits);
  const exponent = reader.readU32('exponent');
  if (exponent !== 0 && exponent !== 65_537) throw malformed(`${field}.exponent`, `is ${exponent}, not 65537`);
  const modulus = reader.readSized('modulus', rsaBits / 8);
  if (modulus.length !== rsaBits / 8 || (modulus[0] as number) < 0x80 || ((modulus.at(-1) as number) & 1) === 0)
    throw malformed(`${field}.modulus`, `is not an odd number of ${rsaBits} bits`);
  const key = createPublicKey({ format: 'jwk', key: { kty: 'RSA', n: modulus.toString('base64url'), e: 'AQAB' } });
  return { spki: Uint8Array.from(key.export({ type: 'spki', format: 'der' })), key };
}

const lacks = ({ attributes: held }: TpmPublic, wanted: readonly Attribute[]): Attribute[] =>
  wanted.filter((name) => (held & attributes[name]) === 0);

/**
 * An attestation key: made in its TPM, cannot leave it, and signs what its TPM says of itself and nothing that comes from outside.
 *
 * @throws PERMISSION_DENIED (tpm-ak-attributes)
 */
export function assertAttestationKey(ak: TpmPublic): void {
  const missing = lacks(ak, ['fixedTPM', 'fixedParent', 'sensitiveDataOrigin', 'restricted', 'sign']);
  if (missing.length > 0) throw refused('tpm-ak-attributes', `the attestation key is not ${missing.join(', ')}`);
  if ((ak.attributes & attributes.decrypt) === 0) return;
  throw refused('tpm-ak-attributes', 'the attestation key decrypts too: one key does one job');
}

/**
 * An endorsement key: opens what was made for a name, and only inside the TPM that holds the object of that name.
 *
 * @throws PERMISSION_DENIED (tpm-ek-attributes)
 */
export function assertEndorsementKey(ek: TpmPublic): void {
  const missing = lacks(ek, ['fixedTPM', 'fixedParent', 'sensitiveDataOrigin', 'restricted', 'decrypt']);
  if (missing.length > 0) throw refused('tpm-ek-attributes', `the endorsement key is not ${missing.join(', ')}`);
  if ((ek.attributes & attributes.sign) !== 0) throw refused('tpm-ek-attributes', 'the endorsement key signs too: one key does one job');
  if (!ek.encryptsChildren) throw refused('tpm-ek-attributes', 'the endorsement key has no AES-128 for what it wraps');
}

/** Lower-case hex SHA-256 of the key's SubjectPublicKeyInfo: what an inventory of endorsement keys names. */
export const spkiDigest = ({ spki }: Pick<TpmPublic, 'spki'>): string => createHash('sha256').update(spki).digest('hex');
