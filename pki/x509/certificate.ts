/**
 * A certificate from its bytes (RFC 5280 4.1), strictly: version 3, ecdsa-with-SHA256 inside and outside alike, a P-256 key
 * in its one form, one encoding of everything. What this proves is form. Who signed it, for what, and until when is
 * verifyChain's part.
 */
import { createHash, type KeyObject } from 'node:crypto';
import { DerReader, tags } from './der-reader.ts';
import { readDerTime } from './der-time.ts';
import { encodeDerOid, encodeDerSequence } from './der-writer.ts';
import { type ExtensionFacts, readExtensions } from './extensions.ts';
import { malformed } from './malformed.ts';
import { readName, roleOf } from './name.ts';
import { oids } from './oids.ts';
import { rawFromDerSignature } from './signature.ts';
import { assertSpkiForm, keyOfForm } from './spki.ts';
import type { Certificate, DistinguishedName, KeyUsage } from './types.ts';

/** No certificate of ours reaches a tenth of this. */
export const maxCertificateBytes = 16_384;

/** AlgorithmIdentifier without parameters: RFC 5758 3.2 leaves them out, NULL is another encoding. */
export const signatureAlgorithm: Uint8Array = encodeDerSequence(encodeDerOid(oids.ecdsaWithSha256));

/** What the signed part says, by field. */
export interface CertificateBody {
  readonly serial: string;
  readonly issuer: DistinguishedName;
  readonly subject: DistinguishedName;
  readonly notBefore: number;
  readonly notAfter: number;
  readonly spki: Uint8Array;
  readonly role: string | null;
  readonly extensions: ExtensionFacts;
}

class ParsedCertificate implements Certificate {
  readonly der: Uint8Array;
  readonly tbs: Uint8Array;
  readonly signature: Uint8Array;
  readonly serial: string;
  readonly issuer: DistinguishedName;
  readonly subject: DistinguishedName;
  readonly notBefore: number;
  readonly notAfter: number;
  readonly spki: Uint8Array;
  readonly isCa: boolean;
  readonly pathLen: number | null;
  readonly keyUsage: readonly KeyUsage[] | null;
  readonly ekus: readonly string[] | null;
  readonly uriSans: readonly string[];
  readonly dnsSans: readonly string[];
  readonly ipSans: readonly string[];
  readonly ski: string | null;
  readonly aki: string | null;
  readonly role: string | null;
  #publicKey: KeyObject | undefined;

  constructor(bytes: { der: Uint8Array; tbs: Uint8Array; signature: Uint8Array }, body: CertificateBody) {
    const { extensions } = body;
    this.der = bytes.der;
    this.tbs = bytes.tbs;
    this.signature = bytes.signature;
    this.serial = body.serial;
    this.issuer = body.issuer;
    this.subject = body.subject;
    this.notBefore = body.notBefore;
    this.notAfter = body.notAfter;
    this.spki = body.spki;
    this.isCa = extensions.isCa;
    this.pathLen = extensions.pathLen;
    this.keyUsage = extensions.keyUsage;
    this.ekus = extensions.ekus;
    this.uriSans = extensions.uriSans;
    this.dnsSans = extensions.dnsSans;
    this.ipSans = extensions.ipSans;
    this.ski = extensions.ski;
    this.aki = extensions.aki;
    this.role = body.role;
    Object.freeze(this);
  }

  /** node:crypto proves here that the point is on the curve; MALFORMED when it is not. */
  get publicKey(): KeyObject {
    this.#publicKey ??= keyOfForm(this.spki);
    return this.#publicKey;
  }
}

/** Positive, not zero, at most 20 octets (RFC 5280 4.1.2.2). */
const readSerial = (reader: DerReader): string => {
  const content = reader.readInteger();
  const first = content[0] as number;
  if (first >= 0x80 || content.length > 20 || (first === 0 && content.length === 1))
    throw malformed('serial', 'a serial number is not positive, or longer than 20 bytes');
  return reader.bytes.toString('hex', reader.at - content.length + (first === 0 ? 1 : 0), reader.at);
};

const readSignatureAlgorithm = (reader: DerReader): void => {
  if (!reader.skip(signatureAlgorithm))
    throw malformed('signature-algorithm', 'the signature algorithm is not ecdsa-with-SHA256 without parameters');
};

const readValidity = (reader: DerReader): { notBefore: number; notAfter: number } => {
  const inner = reader.open(tags.sequence);
  const notBefore = readDerTime(inner);
  const notAfter = readDerTime(inner);
  inner.close();
  if (notAfter < notBefore) throw malformed('validity', 'a certificate ends before it begins');
  return { notBefore, notAfter };
};

/** Version 3: [0] EXPLICIT INTEGER 2. */
const readVersion = (reader: DerReader): void => {
  const inner = reader.open(tags.contextConstructed(0));
  const version = inner.readSmallInteger();
  inner.close();
  if (version !== 2) throw malformed('version', `a certificate is version ${version + 1}, not 3`);
};

const readBody = (tbs: Uint8Array): CertificateBody => {
  const reader = new DerReader(tbs).open(tags.sequence);
  readVersion(reader);
  const serial = readSerial(reader);
  readSignatureAlgorithm(reader);
  const issuer = readName(reader);
  const validity = readValidity(reader);
  const subject = readName(reader);
  const spki = reader.readWhole(tags.sequence);
  assertSpkiForm(spki);
  const extensions = readExtensions(reader.open(tags.contextConstructed(3)));
  reader.close();
  // ID-029: the subject's role wins over the former extension's.
  const role = roleOf(subject.attributes) ?? extensions.formerRole;
  return { serial, issuer, subject, ...validity, spki, role, extensions };
};

/** Rules that span fields: names that must be there, and the one condition under which a SAN is critical. */
const assertNames = ({ issuer, subject, extensions }: CertificateBody): void => {
  const hasSubject = subject.attributes.length > 0;
  const hasAlternative = extensions.uriSans.length + extensions.dnsSans.length + extensions.ipSans.length > 0;
  if (issuer.attributes.length === 0) throw malformed('name', 'the issuer is empty');
  if (!hasSubject && (extensions.isCa || !hasAlternative)) throw malformed('name', 'the subject is empty');
  if (hasAlternative && extensions.sanIsCritical === hasSubject)
    throw malformed('extension-criticality', 'alternative names are critical exactly when the subject is empty');
};

/**
 * Parses one DER certificate. Throws MALFORMED (details.reason says which rule) for anything but the strict form: duplicate or
 * unknown critical extensions, trailing bytes, long-form lengths, two roles, NUL or non-ASCII names, another algorithm or key.
 */
export const parseCertificate = (der: Uint8Array): Certificate => {
  if (der.length > maxCertificateBytes)
    throw malformed('too-large', `a certificate has at most ${maxCertificateBytes} bytes, not ${der.length}`);
  return parseOwned(Buffer.from(der));
};

/** The same for bytes that nobody else holds. */
export const parseOwned = (der: Uint8Array): Certificate => {
  const outer = new DerReader(der);
  const reader = outer.open(tags.sequence);
  outer.close();
  const tbs = reader.readWhole(tags.sequence);
  readSignatureAlgorithm(reader);
  const signature = reader.readBitOctets();
  reader.close();
  rawFromDerSignature(signature);
  const body = readBody(tbs);
  assertNames(body);
  return certificateOf({ der, tbs, signature }, body);
};

/** A certificate whose bytes and body were proven to agree (parsed, or compared value by value); for this folder only. */
export const certificateOf = (bytes: { der: Uint8Array; tbs: Uint8Array; signature: Uint8Array }, body: CertificateBody): Certificate =>
  new ParsedCertificate(bytes, body);

/** Lower-case hex SHA-256 of the DER certificate: how roots are named. */
export const certificateId = (der: Uint8Array): string => createHash('sha256').update(der).digest('hex');
