/**
 * Certificate requests (PKCS #10, RFC 2986). A request proves one thing: its sender holds the private half of the key in it.
 * The subject and the extensions it asks for are read for form and then dropped; role, names and lifetime come from the
 * issuer's own records, so a request can never ask for more than it is due.
 */
import type { KeyObject } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { signatureAlgorithm } from './certificate.ts';
import { assertSetOrder, DerReader, readDer, tags } from './der-reader.ts';
import { encodeDer, encodeDerBitString, encodeDerInteger, encodeDerSequence } from './der-writer.ts';
import { malformed } from './malformed.ts';
import { encodeName } from './name.ts';
import { derFromRawSignature, rawFromDerSignature, verifyRawSignature } from './signature.ts';
import { signerFromPrivateKey } from './signer.ts';
import { parseP256Spki, parseUsedP256Spki } from './spki.ts';
import type { CertificateRequest, NameAttribute, Signer } from './types.ts';

/** An honest request has some 200 bytes. */
export const maxRequestBytes = 8_192;

const version1 = encodeDerInteger(Uint8Array.of(0));
const noAttributes = encodeDer(tags.contextConstructed(0));

const isSigner = (key: Signer | KeyObject): key is Signer => 'spki' in key;

/** A request for the key, signed by it. The subject is a courtesy to readers; the default is empty. */
export const createCsr = async (options: {
  readonly key: Signer | KeyObject;
  readonly subject?: readonly NameAttribute[];
}): Promise<Uint8Array> => {
  const signer = isSigner(options.key) ? options.key : signerFromPrivateKey(options.key);
  const info = encodeDerSequence(version1, encodeName(options.subject ?? []), parseP256Spki(signer.spki), noAttributes);
  const signature = derFromRawSignature(await signer.sign(info));
  const der = encodeDerSequence(info, signatureAlgorithm, encodeDerBitString(signature));
  return parseCsr(der).der;
};

/** Attributes: each type once, its values not empty, everything in order. Their meaning is not looked at. */
const assertAttributes = (reader: DerReader): void => {
  const attributes = reader.open(tags.contextConstructed(0));
  const seen = new Set<string>();
  const wholes: Uint8Array[] = [];
  while (!attributes.isAtEnd) {
    const whole = attributes.readWhole(tags.sequence);
    const inner = new DerReader(whole).open(tags.sequence);
    const oid = inner.readOid();
    const values = inner.open(tags.set);
    inner.close();
    if (values.isAtEnd) throw malformed('attributes', `attribute ${oid} has no value`);
    if (seen.has(oid)) throw malformed('duplicate-attribute', `attribute ${oid} stands twice`);
    seen.add(oid);
    wholes.push(whole);
  }
  assertSetOrder(wholes);
};

/**
 * Parses one request and proves that its key signed it. MALFORMED for anything but strict DER, version 1 and ecdsa-with-SHA256
 * over a P-256 key in its one form; BAD_SIGNATURE when the signature is not the key's.
 */
export const parseCsr = (der: Uint8Array): CertificateRequest => {
  if (der.length > maxRequestBytes)
    throw malformed('too-large', `a certificate request has at most ${maxRequestBytes} bytes, not ${der.length}`);
  const copy = Uint8Array.from(der);
  readDer(copy);
  const reader = new DerReader(copy).open(tags.sequence);
  const info = reader.readWhole(tags.sequence);
  if (Buffer.compare(reader.readWhole(tags.sequence), signatureAlgorithm) !== 0)
    throw malformed('signature-algorithm', 'the signature algorithm is not ecdsa-with-SHA256 without parameters');
  const signature = rawFromDerSignature(reader.readBitOctets());
  reader.close();
  const spki = readInfo(info);
  if (!verifyRawSignature({ spki, input: info, signature }))
    throw new ControlError('BAD_SIGNATURE', 'the certificate request is not signed by its own key', {
      details: { reason: 'request-signature' },
    });
  return Object.freeze({ der: copy, spki });
};

const readInfo = (info: Uint8Array): Uint8Array => {
  const inner = new DerReader(info).open(tags.sequence);
  const version = inner.readSmallInteger();
  if (version !== 0) throw malformed('version', `a certificate request is version ${version + 1}, not 1`);
  inner.readWhole(tags.sequence);
  const spki = parseUsedP256Spki(inner.readWhole(tags.sequence));
  assertAttributes(inner);
  inner.close();
  return spki;
};
