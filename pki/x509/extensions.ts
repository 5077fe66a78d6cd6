/**
 * Certificate extensions, one row each: how it is read, and whether it may be critical. An extension without a row is
 * ignored when it is not critical and refused when it is (RFC 5280 4.2); name constraints are refused even then, because a
 * verifier that skips them trusts more than the authority was given, and `urn:bc:` names do not work under them.
 */
import { type DerReader, tags } from './der-reader.ts';
import {
  DerSink,
  encodeDer,
  encodeDerBoolean,
  encodeDerInteger,
  encodeDerNamedBits,
  encodeDerOctetString,
  encodeDerOid,
  encodeDerSequence,
  sizeOfDer,
} from './der-writer.ts';
import { type AlternativeNames, encodeGeneralNames, readGeneralNames } from './general-names.ts';
import { malformed } from './malformed.ts';
import { isRole } from './name.ts';
import { oids } from './oids.ts';
import type { KeyUsage } from './types.ts';

/** What the extensions of one certificate say. */
export interface ExtensionFacts extends AlternativeNames {
  readonly isCa: boolean;
  readonly pathLen: number | null;
  readonly keyUsage: readonly KeyUsage[] | null;
  readonly ekus: readonly string[] | null;
  readonly sanIsCritical: boolean;
  readonly ski: string | null;
  readonly aki: string | null;
  readonly formerRole: string | null;
}

type Facts = { -readonly [K in keyof ExtensionFacts]: ExtensionFacts[K] };

/** In the order of their bits (RFC 5280 4.2.1.3). */
const keyUsageBits: readonly KeyUsage[] = Object.freeze([
  'digitalSignature',
  'nonRepudiation',
  'keyEncipherment',
  'dataEncipherment',
  'keyAgreement',
  'keyCertSign',
  'cRLSign',
  'encipherOnly',
  'decipherOnly',
]);

const maxExtensions = 32;

const readBasicConstraints = (value: DerReader, facts: Facts, isCritical: boolean): void => {
  const inner = value.open(tags.sequence);
  value.close();
  const isWritten = inner.peek() === tags.boolean;
  facts.isCa = isWritten && inner.readBoolean();
  if (isWritten && !facts.isCa) throw malformed('der-default', 'the basic constraints write out a default');
  // A path length means nothing without the flag (RFC 5280 4.2.1.9).
  if (facts.isCa && inner.peek() === tags.integer) facts.pathLen = inner.readSmallInteger();
  inner.close();
  if (facts.isCa && !isCritical) throw malformed('basic-constraints', 'the basic constraints of a CA are not critical');
};

const usageLists = new Map<number, readonly KeyUsage[]>();

/** There are 2^9 lists at most: each is made once. */
const usageList = (bits: number): readonly KeyUsage[] => {
  const known = usageLists.get(bits) ?? Object.freeze(keyUsageBits.filter((_, bit) => ((bits >> (15 - bit)) & 1) === 1));
  usageLists.set(bits, known);
  return known;
};

const readKeyUsage = (value: DerReader, facts: Facts): void => {
  const content = value.read(tags.bitString);
  value.close();
  const [unused = 8, first = 0, second = 0] = content;
  const last = content.length === 3 ? second : first;
  // Shortest form of a named bit list: the last bit that is written is set (X.690 11.2.2).
  if (content.length < 2 || content.length > 3 || unused > 7 || (last & ((1 << unused) - 1)) !== 0 || ((last >> unused) & 1) !== 1)
    throw malformed('key-usage', 'the key usage is empty or not in its shortest form');
  if ((second & 0x7f) !== 0) throw malformed('key-usage', 'the key usage sets a bit that has no name');
  facts.keyUsage = usageList(first * 256 + second);
};

const readExtKeyUsage = (value: DerReader, facts: Facts): void => {
  const inner = value.open(tags.sequence);
  value.close();
  const ekus: string[] = [];
  while (!inner.isAtEnd) ekus.push(inner.readOid());
  if (ekus.length === 0 || ekus.some((eku, i) => ekus.indexOf(eku) !== i))
    throw malformed('extended-key-usage', 'the extended key usage is empty or repeats itself');
  facts.ekus = Object.freeze(ekus);
};

const readAlternativeNames = (value: DerReader, facts: Facts, isCritical: boolean): void => {
  const names = readGeneralNames(value);
  facts.uriSans = Object.freeze(names.uriSans);
  facts.dnsSans = Object.freeze(names.dnsSans);
  facts.ipSans = Object.freeze(names.ipSans);
  facts.sanIsCritical = isCritical;
};

const readKeyIdentifier = (reader: DerReader, tag: number): string => {
  const hex = reader.readText(tag, 'hex');
  if (hex.length === 0 || hex.length > 128) throw malformed('key-identifier', 'a key identifier has 1 to 64 bytes');
  return hex;
};

const readSubjectKeyIdentifier = (value: DerReader, facts: Facts): void => {
  facts.ski = readKeyIdentifier(value, tags.octetString);
  value.close();
};

/** The key identifier and nothing else: issuer and serial would bind a certificate to one of two CA certificates of one key. */
const readAuthorityKeyIdentifier = (value: DerReader, facts: Facts): void => {
  const inner = value.open(tags.sequence);
  value.close();
  facts.aki = readKeyIdentifier(inner, tags.context(0));
  inner.close();
};

const readFormerRole = (value: DerReader, facts: Facts): void => {
  const role = Buffer.from(value.read(tags.utf8String)).toString('latin1');
  value.close();
  if (!isRole(role)) throw malformed('role', 'the former role extension holds something that is not a role');
  facts.formerRole = role;
};

const refuseNameConstraints = (): void => {
  throw malformed('name-constraints', 'name constraints are not taken');
};

interface ExtensionRow {
  readonly critical: 'may' | 'must-not';
  readonly read: (value: DerReader, facts: Facts, isCritical: boolean) => void;
}

const row = (critical: ExtensionRow['critical'], read: ExtensionRow['read']): ExtensionRow => Object.freeze({ critical, read });

const extensionTable: ReadonlyMap<string, ExtensionRow> = new Map([
  [oids.basicConstraints, row('may', readBasicConstraints)],
  [oids.keyUsage, row('may', readKeyUsage)],
  [oids.extKeyUsage, row('may', readExtKeyUsage)],
  [oids.subjectAltName, row('may', readAlternativeNames)],
  [oids.subjectKeyIdentifier, row('must-not', readSubjectKeyIdentifier)],
  [oids.authorityKeyIdentifier, row('must-not', readAuthorityKeyIdentifier)],
  [oids.nameConstraints, row('may', refuseNameConstraints)],
  [oids.formerRole, row('may', readFormerRole)],
]);

const noFacts: ExtensionFacts = Object.freeze({
  isCa: false,
  pathLen: null,
  keyUsage: null,
  ekus: null,
  uriSans: Object.freeze([]),
  dnsSans: Object.freeze([]),
  ipSans: Object.freeze([]),
  sanIsCritical: false,
  ski: null,
  aki: null,
  formerRole: null,
});

/** Reads the Extensions value whole. MALFORMED for one that repeats, that is critical and has no row, or breaks its row. */
export const readExtensions = (value: DerReader): ExtensionFacts => {
  const list = value.open(tags.sequence);
  value.close();
  if (list.isAtEnd) throw malformed('extensions', 'the list of extensions is empty');
  const facts: Facts = { ...noFacts };
  const seen: string[] = [];
  while (!list.isAtEnd) {
    const entry = list.open(tags.sequence);
    const oid = entry.readOid();
    if (seen.includes(oid)) throw malformed('duplicate-extension', `extension ${oid} stands twice`);
    if (seen.push(oid) > maxExtensions) throw malformed('extensions', `there are more than ${maxExtensions} extensions`);
    readExtension(entry, oid, facts);
  }
  return facts;
};

const readExtension = (entry: DerReader, oid: string, facts: Facts): void => {
  const isWritten = entry.peek() === tags.boolean;
  const isCritical = isWritten && entry.readBoolean();
  if (isWritten && !isCritical) throw malformed('der-default', `extension ${oid} writes out a default`);
  const value = entry.open(tags.octetString);
  entry.close();
  const known = extensionTable.get(oid);
  if (known === undefined) {
    if (isCritical) throw malformed('unknown-critical-extension', `extension ${oid} is critical and not known here`);
    return;
  }
  if (isCritical && known.critical === 'must-not') throw malformed('extension-criticality', `extension ${oid} is critical`);
  known.read(value, facts, isCritical);
};

const oidBytes = new Map<string, Uint8Array>(Object.values(oids).map((oid) => [oid, encodeDerOid(oid)]));
const critical = encodeDerBoolean(true);
const nothing = new Uint8Array();

const encodeExtension = (oid: string, isCritical: boolean, value: Uint8Array): Uint8Array =>
  encodeDerSequence(oidBytes.get(oid) ?? encodeDerOid(oid), isCritical ? critical : nothing, encodeDerOctetString(value));

/** Critical (RFC 5280 4.2.1.9). Only for a CA: a leaf goes without. */
export const encodeBasicConstraints = (pathLen: number | null): Uint8Array =>
  encodeExtension(
    oids.basicConstraints,
    true,
    encodeDerSequence(encodeDerBoolean(true), ...(pathLen === null ? [] : [encodeDerInteger(Uint8Array.of(pathLen))])),
  );

/** Critical. */
export const encodeKeyUsage = (usage: readonly KeyUsage[]): Uint8Array =>
  encodeExtension(oids.keyUsage, true, encodeDerNamedBits(usage.map((name) => keyUsageBits.indexOf(name))));

export const encodeExtKeyUsage = (ekus: readonly string[]): Uint8Array =>
  encodeExtension(oids.extKeyUsage, false, encodeDerSequence(...ekus.map(encodeDerOid)));

const identifierBytes = 20;

/** A SubjectKeyIdentifier extension up to its 20 octets, which differ in every certificate. */
export const subjectKeyIdentifierHead: Uint8Array = encodeExtension(
  oids.subjectKeyIdentifier,
  false,
  encodeDerOctetString(new Uint8Array(identifierBytes)),
).slice(0, -identifierBytes);

export const encodeAuthorityKeyIdentifier = (identifier: string): Uint8Array =>
  encodeExtension(oids.authorityKeyIdentifier, false, encodeDerSequence(encodeDer(tags.context(0), Buffer.from(identifier, 'hex'))));

/** Critical exactly when the subject is empty (RFC 5280 4.2.1.6). */
export const encodeSubjectAltName = (names: AlternativeNames, isCritical: boolean): Uint8Array => {
  const parts = encodeGeneralNames(names);
  const oid = oidBytes.get(oids.subjectAltName) as Uint8Array;
  const listed = parts.reduce((sum, part) => sum + part.length, 0);
  const value = sizeOfDer(listed);
  const content = oid.length + (isCritical ? critical.length : 0) + sizeOfDer(value);
  const sink = new DerSink(sizeOfDer(content));
  sink.header(tags.sequence, content);
  sink.put(oid);
  if (isCritical) sink.put(critical);
  sink.header(tags.octetString, value);
  sink.header(tags.sequence, listed);
  for (const part of parts) sink.put(part);
  return sink.close();
};
