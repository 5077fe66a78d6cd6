/**
 * An attestation key in software, written from the specification and not from our reader: what a TPM would say and sign, where a test is
 * about what is done with it. That real TPMs are understood is shown with swtpm.
 */
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { spkiOf } from '../../pki/x509/index.ts';
import { signingInput } from '../../proto/index.ts';

const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 0xff]);
const u32 = (value: number): Buffer => Buffer.concat([u16(value >>> 16), u16(value & 0xffff)]);
const tpm2b = (bytes: Uint8Array): Buffer => Buffer.concat([u16(bytes.length), bytes]);
const sha256 = (...parts: readonly Uint8Array[]): Buffer => createHash('sha256').update(Buffer.concat(parts)).digest();

export interface SoftwareAk {
  /** TPM2B_PUBLIC. */
  readonly akPublic: Buffer;
  readonly name: Buffer;
  /** A quote about these bytes, and the signature. */
  quote(extraData: Uint8Array): { readonly akPublic: Buffer; readonly quote: Buffer; readonly signature: Buffer };
  /** The same about a node's key, as a KeyAttestation says it. */
  attest(spki: Uint8Array, request: Uint8Array): ReturnType<SoftwareAk['quote']>;
}

/** fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, restricted, sign. */
const akAttributes = 0x0005_0072;

export function createSoftwareAk({ attributes = akAttributes }: { attributes?: number } = {}): SoftwareAk {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const point = Buffer.from(spkiOf(publicKey)).subarray(-64);
  const [ecc, hash, none, ecdsa, p256] = [u16(0x23), u16(0x0b), u16(0x10), u16(0x18), u16(0x03)] as const;
  const unique = [tpm2b(point.subarray(0, 32)), tpm2b(point.subarray(32))];
  const area = Buffer.concat([ecc, hash, u32(attributes), u16(0), none, ecdsa, hash, p256, none, ...unique]);
  const name = Buffer.concat([hash, sha256(area)]);
  const akPublic = tpm2b(area);
  const quote: SoftwareAk['quote'] = (extraData) => {
    const head = [Buffer.from('ff5443478018', 'hex'), tpm2b(name), tpm2b(extraData), Buffer.alloc(17), Buffer.alloc(8)];
    const selection = [u32(1), hash, Buffer.from([3, 1, 0, 0])];
    const made = Buffer.concat([...head, ...selection, tpm2b(sha256())]);
    const rs = sign('sha256', made, { key: privateKey, dsaEncoding: 'ieee-p1363' });
    return { akPublic, quote: made, signature: Buffer.concat([ecdsa, hash, tpm2b(rs.subarray(0, 32)), tpm2b(rs.subarray(32))]) };
  };
  return { akPublic, name, quote, attest: (spki, request) => quote(sha256(signingInput('key-attestation', [spki, request]))) };
}
