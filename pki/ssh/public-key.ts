/**
 * OpenSSH public keys, as blobs and as lines. Four kinds are taken: Ed25519 and P-256, each also in a security key. RSA keys
 * are read for their form, because a revocation list must be able to answer for a certificate over one; nothing here trusts them.
 */
import { createHash, type KeyObject } from 'node:crypto';
import { pointOf, spkiOfPoint } from '../jose/ecdh.ts';
import { findSpki, publicKeyOf, unsharedPublicKey } from '../x509/index.ts';
import { ed25519KeyOfBytes } from './ed25519.ts';
import { malformed, unsupported } from './refusals.ts';
import { encodeString, isOneLine, SshReader } from './wire.ts';

export interface SshPublicKey {
  readonly type: SshKeyType;
  /** The wire form: type and parts. */
  readonly blob: Uint8Array;
  /** null for a kind whose signatures are not verified here. */
  readonly key: KeyObject | null;
}

/** Makes the key of what was read; null for a kind whose signatures are not verified here. Costs ten times the reading. */
type MakeKey = (() => KeyObject) | null;

interface KeyKind {
  /** Reads what follows the type, and judges its form. */
  readonly read: (reader: SshReader) => MakeKey;
  /** May an authority have it (A-PKI-02). */
  readonly mayCertify: boolean;
  /** May a user certificate be issued for it; and a host certificate. */
  readonly mayBeUser: boolean;
  readonly mayBeHost: boolean;
}

const readEd25519 = (reader: SshReader): MakeKey => {
  const bytes = reader.readString('key');
  if (bytes.length !== 32) throw malformed('key', `has ${bytes.length} bytes, not 32`);
  return () => ed25519KeyOfBytes(bytes);
};

const readP256 = (reader: SshReader): MakeKey => {
  if (reader.readString('curve').toString('latin1') !== 'nistp256') throw malformed('curve', 'is not nistp256');
  const spki = spkiOfPoint(reader.readString('point'), 'point');
  return () => publicKeyOf(spki);
};

/** A key in a security key: the signature is over more than the message, so nothing here can verify one. */
const inSecurityKey =
  (read: KeyKind['read']) =>
  (reader: SshReader): null => {
    read(reader);
    if (!/^ssh:[\x21-\x7e]{0,128}$/.test(reader.readString('application').toString('latin1')))
      throw malformed('application', 'does not begin with ssh:');
    return null;
  };

const readRsa = (reader: SshReader): null => {
  const [exponent, modulus] = [reader.readMpint('exponent'), reader.readMpint('modulus')];
  if (exponent.length === 0 || modulus.length < 128 || modulus.length > 2_048) throw malformed('modulus', 'is not one of RSA');
  return null;
};

const kind = (read: KeyKind['read'], may: Partial<Omit<KeyKind, 'read'>>): KeyKind =>
  Object.freeze({ read, mayCertify: false, mayBeUser: false, mayBeHost: false, ...may });

const kinds = Object.freeze({
  'ssh-ed25519': kind(readEd25519, { mayCertify: true, mayBeUser: true, mayBeHost: true }),
  'ecdsa-sha2-nistp256': kind(readP256, { mayCertify: true, mayBeUser: true, mayBeHost: true }),
  'sk-ssh-ed25519@openssh.com': kind(inSecurityKey(readEd25519), { mayBeUser: true }),
  'sk-ecdsa-sha2-nistp256@openssh.com': kind(inSecurityKey(readP256), { mayBeUser: true }),
  'ssh-rsa': kind(readRsa, {}),
});

export type SshKeyType = keyof typeof kinds;

/** The names a certificate over each kind has: the plain name with `-cert-v01@openssh.com`. */
export const certificateTypeOf = (type: SshKeyType): string => `${type.replace(/@openssh\.com$/, '')}-cert-v01@openssh.com`;

export const keyTypeOfCertificate = (name: string): SshKeyType | null =>
  (Object.keys(kinds) as SshKeyType[]).find((type) => certificateTypeOf(type) === name) ?? null;

const isKeyType = (name: string): name is SshKeyType => Object.hasOwn(kinds, name);

export const keyKindOf = (type: SshKeyType): KeyKind => kinds[type];

const maxKeyBytes = 4_096;

/** Reads one key blob to its end. MALFORMED, or UNSUPPORTED for a kind that is not known. */
export const parseSshKeyBlob = (bytes: Uint8Array, field: string): SshPublicKey => {
  const { type, blob, makeKey } = readBlob(bytes, field);
  return Object.freeze({ type, blob, key: makeKey === null ? null : makeKey() });
};

const readBlob = (bytes: Uint8Array, field: string): Pick<SshPublicKey, 'type' | 'blob'> & { readonly makeKey: MakeKey } => {
  if (bytes.length > maxKeyBytes) throw malformed(field, `has more than ${maxKeyBytes} bytes`);
  const blob = Uint8Array.from(bytes);
  const reader = new SshReader(blob, field);
  const type = reader.readString('type').toString('latin1');
  if (!isKeyType(type))
    throw unsupported(`${field}.type`, `is ${JSON.stringify(type.slice(0, 64))}, none of ${Object.keys(kinds).join(', ')}`);
  const makeKey = kinds[type].read(reader);
  reader.close();
  return { type, blob, makeKey };
};

/** A plain key of any kind, as a list may name it; of the kinds known here, only one that is well formed. MALFORMED for a certificate. */
export const plainKeyBlob = (bytes: Uint8Array, field: string): Uint8Array => {
  const type = new SshReader(bytes, field).readText('type', 64);
  if (type === '' || type.includes('-cert-')) throw malformed(field, 'is not a plain key');
  return isKeyType(type) ? readBlob(bytes, field).blob : Uint8Array.from(bytes);
};

/** The plain key of a certificate, read from where its parts stand. */
export const readPlainKey = (type: SshKeyType, reader: SshReader): SshPublicKey => {
  let key: KeyObject | null = null;
  const parts = reader.readWindow((inner) => {
    key = kinds[type].read(inner)?.() ?? null;
  });
  return Object.freeze({ type, blob: Uint8Array.from(Buffer.concat([encodeString(type), parts])), key });
};

/** The words of a line: algorithm, canonical base64, comment. MALFORMED for anything that is not exactly one line. */
export const splitKeyLine = (line: string, field: string): { readonly type: string; readonly blob: Buffer; readonly comment: string } => {
  if (line.length > 32_768 || !isOneLine(line)) throw malformed(field, 'is not one line');
  const [type = '', encoded = '', ...comment] = line.split(' ');
  const blob = Buffer.from(encoded, 'base64');
  if (type === '' || blob.length === 0 || blob.toString('base64') !== encoded) throw malformed(field, 'is not `type base64 comment`');
  return { type, blob, comment: comment.join(' ') };
};

/** One line `type base64 comment`. A second line would be a second trusted key, so there is none. */
export const parseSshKeyLine = (line: string, field = 'key'): SshPublicKey & { readonly comment: string } => {
  const { type, blob, comment } = splitKeyLine(line, field);
  const key = parseSshKeyBlob(blob, field);
  if (key.type !== type) throw malformed(field, `says ${JSON.stringify(type.slice(0, 64))} and holds ${key.type}`);
  return Object.freeze({ ...key, comment });
};

export const encodeSshKeyLine = ({ type, blob }: Pick<SshPublicKey, 'type' | 'blob'>, comment: string): string =>
  `${type} ${Buffer.from(blob).toString('base64')}${comment === '' ? '' : ` ${comment}`}`;

/** The SSH form of an Ed25519 or P-256 key, public or private. UNSUPPORTED for another kind. */
export const sshKeyOf = (key: KeyObject): SshPublicKey => {
  const parts = partsOf(key);
  return parseSshKeyBlob(Buffer.concat(parts.map(encodeString)), 'key');
};

const partsOf = (key: KeyObject): (string | Uint8Array)[] => {
  if (key.asymmetricKeyType === 'ed25519') {
    const { x = '' } = unsharedPublicKey(key).export({ format: 'jwk' });
    return ['ssh-ed25519', Buffer.from(x, 'base64url')];
  }
  const spki = findSpki(key);
  if (spki !== undefined) return ['ecdsa-sha2-nistp256', 'nistp256', pointOf(spki)];
  throw unsupported('key', `is ${key.asymmetricKeyType ?? key.type}, neither Ed25519 nor P-256`);
};

/** `SHA256:<base64 without padding>` over the blob, as OpenSSH prints it. */
export const sshFingerprint = (blob: Uint8Array): string =>
  `SHA256:${createHash('sha256').update(blob).digest('base64').replace(/=+$/, '')}`;
