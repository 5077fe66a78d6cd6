/** Bare signatures and keys: es256, ed25519, ecdh, spki. */
import { ControlError } from '../../../domain/errors.ts';
import { agree, privateKeyOfScalar, spkiOfPoint } from '../../../pki/jose/index.ts';
import { kidOf, parseP256Spki, rawFromDerSignature, verifyRawSignature } from '../../../pki/x509/index.ts';
import { type Case, hexField, oneOf, toHex } from '../case.ts';

const assertVerified = (isVerified: boolean): void => {
  if (!isVerified) throw new ControlError('BAD_SIGNATURE', 'the signature is not by this key', { details: { reason: 'bad-signature' } });
};

export const judgeEs256 = (read: Case): void => {
  const encoding = oneOf(read, 'encoding', ['p1363', 'der']);
  const given = hexField(read, 'sig');
  const signature = encoding === 'der' ? rawFromDerSignature(given) : given;
  assertVerified(verifyRawSignature({ spki: hexField(read, 'spki'), input: hexField(read, 'msg'), signature }));
};

/** A scalar comes as an integer: with a leading zero octet, or shorter than its field. */
const scalarOf = (integer: Uint8Array): Uint8Array => {
  const start = integer.findIndex((octet) => octet !== 0);
  const octets = start < 0 ? integer.subarray(0, 0) : integer.subarray(start);
  return octets.length >= 32 ? octets : Buffer.concat([Buffer.alloc(32 - octets.length), octets]);
};

export const judgeEcdh = (read: Case): string => {
  const spki = spkiOfPoint(hexField(read, 'point'), 'point');
  return toHex(agree(privateKeyOfScalar(scalarOf(hexField(read, 'private')), 'private'), spki));
};

export const judgeSpki = (read: Case): { readonly kid: string } => ({ kid: kidOf(parseP256Spki(hexField(read, 'spki'))) });
