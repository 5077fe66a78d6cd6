/**
 * OpenSSH certificates, read strictly (PROTOCOL.certkeys). A parsed certificate proves nothing: verifySshCertificate does.
 *
 *   string type · string nonce · the key's parts · uint64 serial · uint32 1 user, 2 host · string key id ·
 *   string (principals) · uint64 after · uint64 before · string (critical options) · string (extensions) ·
 *   string reserved · string authority's key · string signature over everything before it
 */

import { parseOptions, type SshOptions } from './options.ts';
import { keyTypeOfCertificate, parseSshKeyBlob, readPlainKey, type SshPublicKey, splitKeyLine } from './public-key.ts';
import { malformed, unsupported } from './refusals.ts';
import { decodeText, SshReader } from './wire.ts';

export type SshCertificateKind = 'user' | 'host';

/** `valid before` of a certificate without an end. */
export const forever = 0xffff_ffff_ffff_ffffn;

export interface SshCertificate {
  readonly blob: Uint8Array;
  /** What the signature is over. */
  readonly signed: Uint8Array;
  readonly signature: Uint8Array;
  readonly type: string;
  /** The plain key that is certified. */
  readonly publicKey: SshPublicKey;
  readonly serial: bigint;
  readonly kind: SshCertificateKind;
  readonly keyId: string;
  readonly principals: readonly string[];
  /** Seconds since 1970, as the format has them; the second `before` is no longer in it. */
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly criticalOptions: SshOptions;
  readonly extensions: SshOptions;
  readonly authority: SshPublicKey;
}

const maxCertificateBytes = 16_384;
const maxNameBytes = 256;
const maxPrincipals = 64;
const kinds: Readonly<Record<number, SshCertificateKind>> = Object.freeze({ 1: 'user', 2: 'host' });

/** MALFORMED naming the field; UNSUPPORTED for a kind of key that is not known. */
export const parseSshCertificate = (bytes: Uint8Array): SshCertificate => {
  if (bytes.length > maxCertificateBytes) throw malformed('certificate', `has more than ${maxCertificateBytes} bytes`);
  const blob = Uint8Array.from(bytes);
  const reader = new SshReader(blob, 'certificate');
  const body = {} as { -readonly [K in keyof SshCertificate]: SshCertificate[K] };
  const signed = reader.readWindow(() => Object.assign(body, readHead(reader), readBody(reader), readTail(reader)));
  const signature = reader.readString('signature');
  reader.close();
  return Object.freeze({ ...body, blob, signed, signature });
};

const readHead = (reader: SshReader): Pick<SshCertificate, 'type' | 'publicKey'> => {
  const type = reader.readString('type').toString('latin1');
  const keyType = keyTypeOfCertificate(type);
  if (keyType === null)
    throw unsupported('certificate.type', `is ${JSON.stringify(type.slice(0, 64))}, no certificate of a known kind of key`);
  const nonce = reader.readString('nonce');
  if (nonce.length < 16 || nonce.length > 64) throw malformed('certificate.nonce', `has ${nonce.length} bytes, not 16 to 64`);
  return { type, publicKey: readPlainKey(keyType, reader) };
};

const readBody = (reader: SshReader): Pick<SshCertificate, 'serial' | 'kind' | 'keyId' | 'principals' | 'validAfter' | 'validBefore'> => {
  const serial = reader.readU64('serial');
  const kind = kinds[reader.readU32('kind')];
  if (kind === undefined) throw malformed('certificate.kind', 'is neither user nor host');
  const keyId = reader.readText('key_id', maxNameBytes);
  const principals = readPrincipals(reader.readString('principals'));
  const [validAfter, validBefore] = [reader.readU64('valid_after'), reader.readU64('valid_before')];
  if (validAfter >= validBefore) throw malformed('certificate.valid_before', 'is not after valid_after');
  return { serial, kind, keyId, principals, validAfter, validBefore };
};

const readPrincipals = (bytes: Uint8Array): readonly string[] => {
  const reader = new SshReader(bytes, 'certificate.principals');
  const principals: string[] = [];
  while (!reader.isAtEnd) {
    const name = decodeText(reader.readString('name'), 'certificate.principals', maxNameBytes);
    if (name === '' || principals.includes(name)) throw malformed('certificate.principals', 'has a name that is empty or stands twice');
    if (principals.length === maxPrincipals) throw malformed('certificate.principals', `has more than ${maxPrincipals} names`);
    principals.push(name);
  }
  return Object.freeze(principals);
};

const readTail = (reader: SshReader): Pick<SshCertificate, 'criticalOptions' | 'extensions' | 'authority'> => {
  const criticalOptions = parseOptions(reader.readString('critical_options'), 'certificate.critical_options');
  const extensions = parseOptions(reader.readString('extensions'), 'certificate.extensions');
  if (reader.readString('reserved').length > 0) throw malformed('certificate.reserved', 'is not empty');
  return { criticalOptions, extensions, authority: parseSshKeyBlob(reader.readString('signature_key'), 'certificate.signature_key') };
};

/** One line `type base64 comment`, as ssh-keygen writes it, with or without its line end. */
export const parseSshCertificateLine = (text: string): SshCertificate & { readonly comment: string } => {
  const { type, blob, comment } = splitKeyLine(text.replace(/\n$/, ''), 'certificate');
  const certificate = parseSshCertificate(blob);
  if (certificate.type !== type) throw malformed('certificate', `says ${JSON.stringify(type.slice(0, 64))} and holds ${certificate.type}`);
  return Object.freeze({ ...certificate, comment });
};

export const encodeSshCertificateLine = ({ type, blob }: Pick<SshCertificate, 'type' | 'blob'>, comment = ''): string =>
  `${type} ${Buffer.from(blob).toString('base64')}${comment === '' ? '' : ` ${comment}`}`;
