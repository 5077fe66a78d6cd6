/** Signature blobs of Ed25519 and P-256 authorities: raw 64 bytes, and two integers (RFC 8709, RFC 5656). */
import { type KeyObject, sign } from 'node:crypto';
import { assertRawSignature, verifyRaw } from '../x509/signature.ts';
import { verifyEd25519 } from './ed25519.ts';
import { type SshPublicKey, sshKeyOf } from './public-key.ts';
import { malformed, unsupported } from './refusals.ts';
import { encodeMpint, encodeString, SshReader } from './wire.ts';

/** Signs for an SSH authority: a key file, or a service behind the port. Ed25519: 64 bytes; P-256: raw r‖s over SHA-256. */
export interface SshSigner {
  readonly publicKey: SshPublicKey;
  sign(input: Uint8Array): Promise<Uint8Array>;
}

/** A signer over a private key in this process. UNSUPPORTED for another kind of key. */
export const sshSignerFromPrivateKey = (key: KeyObject): SshSigner => {
  const publicKey = sshKeyOf(key);
  const make =
    publicKey.type === 'ssh-ed25519'
      ? (input: Uint8Array) => sign(null, input, key)
      : (input: Uint8Array) => sign('sha256', input, { key, dsaEncoding: 'ieee-p1363' });
  return Object.freeze({ publicKey, sign: async (input: Uint8Array) => make(input) });
};

/** The wire form of what a signer answered. MALFORMED when that is no signature of its kind. */
export const encodeSshSignature = ({ type }: SshPublicKey, raw: Uint8Array): Buffer => {
  if (type === 'ssh-ed25519') {
    if (raw.length !== 64) throw malformed('signature', `has ${raw.length} bytes, not 64`);
    return Buffer.concat([encodeString(type), encodeString(raw)]);
  }
  assertRawSignature(raw);
  return Buffer.concat([
    encodeString(type),
    encodeString(Buffer.concat([encodeMpint(raw.subarray(0, 32)), encodeMpint(raw.subarray(32))])),
  ]);
};

/** True when the blob is a signature of this key over the input. MALFORMED for another form, UNSUPPORTED for another kind of key. */
export const verifySshSignature = (signer: SshPublicKey, input: Uint8Array, blob: Uint8Array): boolean => {
  if (signer.key === null) throw unsupported('signature_key', `is ${signer.type}: no authority here has one`);
  const reader = new SshReader(blob, 'signature');
  const type = reader.readString('type').toString('latin1');
  if (type !== signer.type) throw malformed('signature.type', `is not ${signer.type}, the kind of its key`);
  const value = reader.readString('value');
  reader.close();
  if (type === 'ssh-ed25519') return verifyEd25519(signer.key, input, value);
  return verifyRaw(signer.key, input, rawOf(value));
};

const rawOf = (value: Uint8Array): Uint8Array => {
  const reader = new SshReader(value, 'signature');
  const raw = new Uint8Array(64);
  for (const [name, end] of [
    ['r', 32],
    ['s', 64],
  ] as const) {
    const octets = reader.readMpint(name);
    if (octets.length > 32) throw malformed(`signature.${name}`, 'is out of range');
    raw.set(octets, end - octets.length);
  }
  reader.close();
  assertRawSignature(raw);
  return raw;
};
