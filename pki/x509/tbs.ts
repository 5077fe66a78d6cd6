/**
 * A template as bytes: the TBSCertificate that will be signed. What certificates of one issuer or profile share is encoded once
 * and remembered by the frozen value it came from (an issuer's parsed certificate, a profile's usage list).
 */
import { ControlError } from '../../domain/errors.ts';
import { signatureAlgorithm } from './certificate.ts';
import { DerReader, tags } from './der-reader.ts';
import { encodeDerTime, readDerTime } from './der-time.ts';
import { DerSink, encodeDer, encodeDerInteger, encodeDerOid, encodeDerSequence, sizeOfDer } from './der-writer.ts';
import {
  encodeAuthorityKeyIdentifier,
  encodeBasicConstraints,
  encodeExtKeyUsage,
  encodeKeyUsage,
  encodeSubjectAltName,
  subjectKeyIdentifierHead,
} from './extensions.ts';
import { uriTag } from './general-names.ts';
import { encodeName } from './name.ts';
import { oids } from './oids.ts';
import { serialOctets } from './serial.ts';
import { keyIdentifierOf } from './spki.ts';
import type { Certificate, CertificateTemplate } from './types.ts';

const version3 = encodeDer(tags.contextConstructed(0), encodeDerInteger(Uint8Array.of(2)));
const nothing = new Uint8Array();
const oidOf = { subjectKeyIdentifier: encodeDerOid(oids.subjectKeyIdentifier), subjectAltName: encodeDerOid(oids.subjectAltName) };

/** Remembers an encoding for as long as the frozen value it came from lives. */
const remember = <K extends object>(encode: (key: K) => Uint8Array): ((key: K) => Uint8Array) => {
  const known = new WeakMap<K, Uint8Array>();
  return (key) => {
    const found = known.get(key);
    if (found !== undefined) return found;
    const encoded = encode(key);
    if (Object.isFrozen(key)) known.set(key, encoded);
    return encoded;
  };
};

const nameOf = remember(encodeName);
const keyUsageOf = remember(encodeKeyUsage);
const extKeyUsageOf = remember(encodeExtKeyUsage);
const authorityOf = remember(({ spki, ski }: Certificate) => encodeAuthorityKeyIdentifier(ski ?? keyIdentifierOf(spki)));

let lastValidity: { notBefore: number; notAfter: number; der: Uint8Array } = { notBefore: Number.NaN, notAfter: Number.NaN, der: nothing };

/** Certificates that are issued in one second share their times, which are read back once. INTERNAL when they read otherwise. */
const validityOf = ({ notBefore, notAfter }: CertificateTemplate): Uint8Array => {
  if (lastValidity.notBefore !== notBefore || lastValidity.notAfter !== notAfter)
    lastValidity = { notBefore, notAfter, der: encodeValidity(notBefore, notAfter) };
  return lastValidity.der;
};

const encodeValidity = (notBefore: number, notAfter: number): Uint8Array => {
  const der = encodeDerSequence(encodeDerTime(notBefore), encodeDerTime(notAfter));
  const reader = new DerReader(der).open(tags.sequence);
  if (readDerTime(reader) !== notBefore || readDerTime(reader) !== notAfter)
    throw new ControlError('INTERNAL', `the times ${notBefore} and ${notAfter} do not read back as they were written`, {
      details: { reason: 'signed-other' },
    });
  return der;
};

/** What a template says once its issuer is known. */
export interface AskedCertificate {
  readonly template: CertificateTemplate;
  /** null: self-signed, without an authority key identifier. */
  readonly issuer: Certificate | null;
  /** The subject's key identifier, in hex. */
  readonly ski: string;
}

const hasNames = ({ uriSans, dnsSans, ipSans }: CertificateTemplate): boolean => uriSans.length + dnsSans.length + ipSans.length > 0;

const issuerName = ({ template, issuer }: AskedCertificate): Uint8Array =>
  issuer === null ? nameOf(template.subject) : issuer.subject.der;

const constraintsOf = ({ isCa, pathLen }: CertificateTemplate): Uint8Array => (isCa ? encodeBasicConstraints(pathLen) : nothing);

const extendedOf = ({ ekus }: CertificateTemplate): Uint8Array => (ekus.length > 0 ? extKeyUsageOf(ekus) : nothing);

const identifierBytes = 20;

/** The bytes to sign. INVALID_INPUT when a value of the template cannot be written. */
export const encodeTbs = (asked: AskedCertificate): Uint8Array => {
  const { template, issuer, ski } = asked;
  const serial = encodeDerInteger(serialOctets(template.serial));
  const before = [version3, serial, signatureAlgorithm, issuerName(asked), validityOf(template), nameOf(template.subject), template.spki];
  const usages = [constraintsOf(template), keyUsageOf(template.keyUsage), extendedOf(template), subjectKeyIdentifierHead];
  const authority = issuer === null ? nothing : authorityOf(issuer);
  const names = hasNames(template) ? encodeSubjectAltName(template, template.subject.length === 0) : nothing;
  const list = sizeOfAll(usages) + identifierBytes + authority.length + names.length;
  const content = sizeOfAll(before) + sizeOfDer(sizeOfDer(list));
  const sink = new DerSink(sizeOfDer(content));
  sink.header(tags.sequence, content);
  for (const part of before) sink.put(part);
  sink.header(tags.contextConstructed(3), sizeOfDer(list));
  sink.header(tags.sequence, list);
  for (const part of usages) sink.put(part);
  sink.text(ski, 'hex');
  sink.put(authority);
  sink.put(names);
  return sink.close();
};

const sizeOfAll = (parts: readonly Uint8Array[]): number => {
  let size = 0;
  for (const part of parts) size += part.length;
  return size;
};

/** The certificate: what was signed, how, and the DER signature. */
export const encodeSigned = (tbs: Uint8Array, signature: Uint8Array): Uint8Array => {
  const content = tbs.length + signatureAlgorithm.length + sizeOfDer(1 + signature.length);
  const sink = new DerSink(sizeOfDer(content));
  sink.header(tags.sequence, content);
  sink.put(tbs);
  sink.put(signatureAlgorithm);
  sink.header(tags.bitString, 1 + signature.length);
  sink.put(noUnusedBits);
  sink.put(signature);
  return sink.close();
};

const noUnusedBits = Uint8Array.of(0);

/** Reads a serial and says whether it is this one. */
const isSerial = (tbs: DerReader, serial: string): boolean => {
  const hex = tbs.readText(tags.integer, 'hex');
  return hex === serial || (hex.length === serial.length + 2 && hex.startsWith('00') && hex.endsWith(serial));
};

const isKeyIdentifier = (list: DerReader, ski: string): boolean => {
  const entry = list.open(tags.sequence);
  if (!entry.skip(oidOf.subjectKeyIdentifier)) return false;
  const value = entry.open(tags.octetString);
  return value.readText(tags.octetString, 'hex') === ski && value.isAtEnd && entry.isAtEnd;
};

/** The URIs of an agent and no other name, in order. */
const isUriList = (list: DerReader, { uriSans, subject }: CertificateTemplate): boolean => {
  const entry = list.open(tags.sequence);
  const isNamed = entry.skip(oidOf.subjectAltName) && (subject.length > 0 || entry.readBoolean());
  if (!isNamed) return false;
  const value = entry.open(tags.octetString);
  const names = value.open(tags.sequence);
  return uriSans.every((uri) => names.readText(uriTag, 'latin1') === uri) && names.isAtEnd && value.isAtEnd && entry.isAtEnd;
};

/**
 * Reads the content of a TBSCertificate and compares it with what was asked, value by value: serial, key, identifier and URIs
 * are read from the bytes; what certificates share (names, times, usages, the issuer's identifier) is compared with the encoding
 * that was read back when it was first used. For templates whose only names are URIs. Returns the key as
 * it stands in the bytes; null when anything differs; MALFORMED when it is no DER.
 */
export const findAskedKey = (tbs: DerReader, asked: AskedCertificate): Uint8Array | null => {
  const { template } = asked;
  const isHead = tbs.skip(version3) && isSerial(tbs, template.serial) && tbs.skip(signatureAlgorithm) && tbs.skip(issuerName(asked));
  if (!isHead || !tbs.skip(validityOf(template)) || !tbs.skip(nameOf(template.subject))) return null;
  const spki = tbs.readWhole(tags.sequence);
  const isSame = Buffer.compare(spki, template.spki) === 0 && isExtensionsOf(tbs.open(tags.contextConstructed(3)), asked) && tbs.isAtEnd;
  return isSame ? spki : null;
};

const isExtensionsOf = (wrapper: DerReader, { template, issuer, ski }: AskedCertificate): boolean => {
  const list = wrapper.open(tags.sequence);
  const isUsage =
    wrapper.isAtEnd && list.skip(constraintsOf(template)) && list.skip(keyUsageOf(template.keyUsage)) && list.skip(extendedOf(template));
  const isKeys = isUsage && isKeyIdentifier(list, ski) && (issuer === null || list.skip(authorityOf(issuer)));
  return isKeys && (!hasNames(template) || isUriList(list, template)) && list.isAtEnd;
};
