/** What a TPM says of itself and signs (TPMS_ATTEST of type quote), and the signature (TPMT_SIGNATURE). Read strictly. */
import { verify } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { algorithms } from './algorithms.ts';
import { readCoordinate, type TpmPublic } from './public-area.ts';
import { malformed } from './refusals.ts';
import { showU16, TpmReader } from './wire.ts';

/** TPM_GENERATED_VALUE: a restricted key signs bytes that begin so only when its own TPM made them. */
const generated = 0xff54_4347;
const typeQuote = 0x8018;
const maxNameBytes = 66;
const maxExtraBytes = 66;
const maxBanks = 16;

export const maxQuoteBytes = 1024;
export const maxSignatureBytes = 300;

export interface TpmQuote {
  /** What whoever asked for the quote had put in: not of the TPM's making. */
  readonly extraData: Uint8Array;
  /** Of the registers that were asked for. Nothing is decided by it here. */
  readonly pcrDigest: Uint8Array;
}

/** @throws MALFORMED for anything but a quote */
export function parseQuote(bytes: Uint8Array): TpmQuote {
  if (bytes.length > maxQuoteBytes) throw malformed('quote', `has ${bytes.length} bytes, more than ${maxQuoteBytes}`);
  const reader = new TpmReader(Uint8Array.from(bytes), 'quote');
  if (reader.readU32('magic') !== generated) throw malformed('quote.magic', 'is not that of a TPM');
  const type = reader.readU16('type');
  if (type !== typeQuote) throw malformed('quote.type', `is ${showU16(type)}, not that of a quote`);
  reader.readSized('qualifiedSigner', maxNameBytes);
  const extraData = reader.readSized('extraData', maxExtraBytes);
  reader.take('clockInfo', 17);
  reader.take('firmwareVersion', 8);
  readSelections(reader);
  const pcrDigest = reader.readSized('pcrDigest', 64);
  reader.close();
  return { extraData, pcrDigest };
}

function readSelections(reader: TpmReader): void {
  const banks = reader.readU32('pcrSelect');
  if (banks > maxBanks) throw malformed('quote.pcrSelect', `has ${banks} banks, more than ${maxBanks}`);
  for (let bank = 0; bank < banks; bank++) {
    reader.readU16('pcrSelect.hash');
    reader.take('pcrSelect.select', reader.readU8('pcrSelect.size'));
  }
}

type TpmSignature = { readonly scheme: 'ecdsa'; readonly rs: Uint8Array } | { readonly scheme: 'rsassa'; readonly bytes: Uint8Array };

/** @throws MALFORMED for anything but ECDSA on P-256 or RSASSA with 2048 bits, over SHA-256 */
export function parseTpmSignature(bytes: Uint8Array): TpmSignature {
  if (bytes.length > maxSignatureBytes) throw malformed('signature', `has ${bytes.length} bytes, more than ${maxSignatureBytes}`);
  const reader = new TpmReader(Uint8Array.from(bytes), 'signature');
  const scheme = reader.readU16('scheme');
  if (scheme !== algorithms.ecdsa && scheme !== algorithms.rsassa)
    throw malformed('signature.scheme', `is ${showU16(scheme)}, neither ECDSA nor RSASSA`);
  reader.expectU16('hash', algorithms.sha256);
  const signature: TpmSignature =
    scheme === algorithms.ecdsa
      ? { scheme: 'ecdsa', rs: Buffer.concat([readCoordinate(reader, 'signature', 'r'), readCoordinate(reader, 'signature', 's')]) }
      : { scheme: 'rsassa', bytes: reader.readSized('bytes', 256) };
  reader.close();
  return signature;
}

/** @throws MALFORMED; BAD_SIGNATURE (tpm-signature) when this key did not sign these bytes */
export function verifyTpmSignature(ak: TpmPublic, signed: Uint8Array, bytes: Uint8Array): void {
  const signature = parseTpmSignature(bytes);
  if (isBy(ak, signed, signature)) return;
  throw new ControlError('BAD_SIGNATURE', 'the attestation key did not sign this quote', { details: { reason: 'tpm-signature' } });
}

function isBy({ type, key }: TpmPublic, signed: Uint8Array, signature: TpmSignature): boolean {
  if (signature.scheme === 'ecdsa') return type === 'ecc' && verify('sha256', signed, { key, dsaEncoding: 'ieee-p1363' }, signature.rs);
  return type === 'rsa' && verify('sha256', signed, key, signature.bytes);
}
