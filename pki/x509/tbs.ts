/**
 * A template as bytes: the TBSCertificate that will be signed. What certificates of one issuer or profile share is encoded once
 * and remembered by the frozen value it came from (an issuer's parsed certificate, a profile's usage list).
 */
import { signatureAlgorithm } from './certificate.ts';
import { tags } from './der-reader.ts';
import { encodeDerTime } from './der-time.ts';
import { encodeDer, encodeDerInteger, encodeDerSequence } from './der-writer.ts';
import {
  encodeAuthorityKeyIdentifier,
  encodeBasicConstraints,
  encodeExtKeyUsage,
  encodeKeyUsage,
  encodeSubjectAltName,
  encodeSubjectKeyIdentifier,
} from './extensions.ts';
import { encodeName } from './name.ts';
import { serialOctets } from './serial.ts';
import { keyIdentifierOf } from './spki.ts';
import type { Certificate, CertificateTemplate } from './types.ts';

const version3 = encodeDer(tags.contextConstructed(0), encodeDerInteger(Uint8Array.of(2)));
const nothing = new Uint8Array();

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
/** INVALID_INPUT cannot happen: issuers are checked to have a key identifier before. */
const authorityOf = remember(({ ski }: Certificate) => encodeAuthorityKeyIdentifier(Buffer.from(ski ?? '', 'hex')));

let lastValidity: { notBefore: number; notAfter: number; der: Uint8Array } = { notBefore: Number.NaN, notAfter: Number.NaN, der: nothing };

/** Certificates that are issued in one second share their times. */
const validityOf = ({ notBefore, notAfter }: CertificateTemplate): Uint8Array => {
  if (lastValidity.notBefore !== notBefore || lastValidity.notAfter !== notAfter)
    lastValidity = { notBefore, notAfter, der: encodeDerSequence(encodeDerTime(notBefore), encodeDerTime(notAfter)) };
  return lastValidity.der;
};

/** The extensions in a fixed order. An issuer of null: self-signed, without an authority key identifier. */
const extensionsOf = (template: CertificateTemplate, issuer: Certificate | null): Uint8Array => {
  const { isCa, pathLen, keyUsage, ekus, subject, uriSans, dnsSans, ipSans } = template;
  const hasNames = uriSans.length + dnsSans.length + ipSans.length > 0;
  return encodeDerSequence(
    isCa ? encodeBasicConstraints(pathLen) : nothing,
    keyUsageOf(keyUsage),
    ekus.length > 0 ? extKeyUsageOf(ekus) : nothing,
    encodeSubjectKeyIdentifier(keyIdentifierOf(template.spki)),
    issuer === null ? nothing : authorityOf(issuer),
    hasNames ? encodeSubjectAltName({ uriSans, dnsSans, ipSans }, subject.length === 0) : nothing,
  );
};

/** The bytes to sign. INVALID_INPUT when a value of the template cannot be written. */
export const encodeTbs = (template: CertificateTemplate, issuer: Certificate | null): Uint8Array =>
  encodeDerSequence(
    version3,
    encodeDerInteger(serialOctets(template.serial)),
    signatureAlgorithm,
    issuer === null ? nameOf(template.subject) : issuer.subject.der,
    validityOf(template),
    nameOf(template.subject),
    template.spki,
    encodeDer(tags.contextConstructed(3), extensionsOf(template, issuer)),
  );
