/**
 * OpenSSH key revocation lists, read strictly (PROTOCOL.krl), and the one question to them.
 *
 * A list that cannot be read to its end is no list: a daemon keeps the one it has. Signed lists are refused, as OpenSSH since 9.4
 * refuses them; a list of ours comes inside a desired state, whose signature covers it. Serials stay as the bytes they came in, so
 * a list of a million costs no more memory than itself.
 */
import { createHash } from 'node:crypto';
import type { SshCertificate } from './certificate.ts';
import { plainKeyBlob, type SshPublicKey } from './public-key.ts';
import { malformed, unsupported } from './refusals.ts';
import { decodeText, SshReader } from './wire.ts';

export const krlMagic = Buffer.from('SSHKRL\n\0', 'latin1');
export const maxKrlBytes = 1_048_576;
/** Sections, key ids and whole keys in all: serials and fingerprints cost little and are bounded by the bytes. */
const maxEntries = 8_192;
/** Keys that stand in a list whole, authorities included; more are named by their fingerprints. */
const maxKeys = 1_024;

export const krlSections = Object.freeze({ certificates: 1, keys: 2, sha1: 3, signature: 4, sha256: 5, extension: 255 });
export const certificateSections = Object.freeze({
  serialList: 0x20,
  serialRange: 0x21,
  serialBitmap: 0x22,
  keyIds: 0x23,
  extension: 0x39,
});

export interface SerialRange {
  readonly first: bigint;
  readonly last: bigint;
}

interface RevokedSerials {
  has(serial: bigint): boolean;
  /** For a list that goes on from this one; none of a bitmap, which goes on as it is. */
  ranges(): Iterable<SerialRange>;
}

/** What one section says about the certificates of one authority. */
interface RevokedCertificates {
  /** The authority's key blob; null: of every authority. */
  readonly authority: Uint8Array | null;
  readonly serials: readonly RevokedSerials[];
  readonly keyIds: ReadonlySet<string>;
  /** Bitmaps and extensions as they came: what a list that goes on from this one does not merge. */
  readonly kept: readonly Uint8Array[];
}

export interface Krl {
  /** Raised with every list. */
  readonly version: bigint;
  /** Seconds since 1970. */
  readonly generatedAt: bigint;
  readonly comment: string;
  readonly certificates: readonly RevokedCertificates[];
  /** Hex of SHA-256 over revoked key blobs, given as keys or as fingerprints. */
  readonly keys: ReadonlySet<string>;
  /** Hex of SHA-1, as older lists have them. */
  readonly keysBySha1: ReadonlySet<string>;
  /** Extensions as they came: passed over here, handed on. */
  readonly extensions: readonly Uint8Array[];
}

interface Found {
  readonly certificates: RevokedCertificates[];
  readonly keys: Set<string>;
  readonly keysBySha1: Set<string>;
  readonly extensions: Uint8Array[];
}

/** What was found so far, and what it cost: a list within its bytes must not hold up whoever reads it. */
interface Reading extends Found {
  /** Counts one more. MALFORMED when there are too many. */
  readonly enter: () => void;
  /** Reads a plain key, each once. MALFORMED when there are too many. */
  readonly plainKey: (bytes: Uint8Array, field: string) => Uint8Array;
}

const startReading = (): Reading => {
  const known = new Map<string, Uint8Array>();
  let entries = 0;
  return {
    certificates: [],
    keys: new Set(),
    keysBySha1: new Set(),
    extensions: [],
    enter: () => {
      entries += 1;
      if (entries > maxEntries) throw malformed('krl', `has more than ${maxEntries} sections, key ids and keys`);
    },
    plainKey: (bytes, field) => {
      // The same one again is not judged again: an authority stands before each of its sections.
      const name = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
      const key = known.get(name) ?? plainKeyBlob(bytes, field);
      known.set(name, key);
      if (known.size > maxKeys) throw malformed(field, `stands for one of more than ${maxKeys} keys: name them by their fingerprints`);
      return key;
    },
  };
};

/** MALFORMED naming the field; UNSUPPORTED for signatures and critical extensions. */
export const parseKrl = (bytes: Uint8Array): Krl => {
  if (bytes.length > maxKrlBytes) throw malformed('krl', `has more than ${maxKrlBytes} bytes`);
  const reader = new SshReader(Uint8Array.from(bytes), 'krl');
  if (bytes.length < krlMagic.length || reader.readU64('magic') !== krlMagic.readBigUInt64BE())
    throw malformed('krl.magic', 'is not that of a revocation list');
  const format = reader.readU32('format');
  if (format !== 1) throw unsupported('krl.format', `is version ${format}, not 1`);
  const [version, generatedAt] = [reader.readU64('version'), reader.readU64('generated')];
  if (reader.readU64('flags') !== 0n) throw unsupported('krl.flags', 'are not zero');
  if (reader.readString('reserved').length > 0) throw malformed('krl.reserved', 'is not empty');
  const comment = reader.readText('comment', 1_024);
  const reading = startReading();
  while (!reader.isAtEnd) readSection(reader, reading);
  const { certificates, keys, keysBySha1, extensions } = reading;
  return Object.freeze({ version, generatedAt, comment, certificates, keys, keysBySha1, extensions });
};

const readSection = (reader: SshReader, reading: Reading): void => {
  const type = reader.readByte('section');
  const read = Object.hasOwn(sectionReaders, type) ? sectionReaders[type] : undefined;
  if (read === undefined) throw unsupported('krl.section', `has type ${type}, which is not known`);
  reading.enter();
  read(new SshReader(reader.readString('section'), 'krl.section'), reading);
};

const digest = (algorithm: 'sha1' | 'sha256', blob: Uint8Array): string => createHash(algorithm).update(blob).digest('hex');

/** A section of strings, at least one. */
const readAll = (reader: SshReader, take: (item: Buffer) => void): void => {
  do take(reader.readString('item'));
  while (!reader.isAtEnd);
};

const readFingerprints = (reader: SshReader, size: number, into: Set<string>): void => {
  let last = '';
  readAll(reader, (item) => {
    const hex = item.toString('hex');
    if (item.length !== size) throw malformed('krl.fingerprint', `has ${item.length} bytes, not ${size}`);
    if (hex <= last) throw malformed('krl.fingerprint', 'is not in ascending order');
    last = hex;
    into.add(hex);
  });
};

/** What is not critical may be passed over; what is, makes the list unreadable. */
const readExtension = (reader: SshReader): void => {
  const name = reader.readText('extension', 256);
  const isCritical = reader.readByte('critical');
  reader.readString('contents');
  reader.close();
  if (isCritical !== 0) throw unsupported('krl.extension', `${JSON.stringify(name.slice(0, 64))} is critical and not known`);
};

const sectionReaders: Readonly<Record<number, (reader: SshReader, reading: Reading) => void>> = Object.freeze({
  [krlSections.certificates]: (reader, reading) => void reading.certificates.push(readCertificates(reader, reading)),
  [krlSections.keys]: (reader, { keys, enter, plainKey }) =>
    readAll(reader, (item) => {
      enter();
      keys.add(digest('sha256', plainKey(item, 'krl.key')));
    }),
  [krlSections.sha1]: (reader, { keysBySha1 }) => readFingerprints(reader, 20, keysBySha1),
  [krlSections.sha256]: (reader, { keys }) => readFingerprints(reader, 32, keys),
  [krlSections.signature]: () => {
    throw unsupported('krl.signature', 'is there: what carries the list is signed, the list is not');
  },
  [krlSections.extension]: (reader, { extensions }) => void extensions.push(reader.readWindow(readExtension)),
});

interface CertificatesReading extends Pick<Reading, 'enter'> {
  readonly serials: RevokedSerials[];
  readonly keyIds: Set<string>;
  readonly kept: Uint8Array[];
}

const keptSections: ReadonlySet<number> = new Set([certificateSections.serialBitmap, certificateSections.extension]);

const readCertificates = (reader: SshReader, { enter, plainKey }: Reading): RevokedCertificates => {
  const key = reader.readString('ca_key');
  const authority = key.length === 0 ? null : plainKey(key, 'krl.ca_key');
  if (reader.readString('reserved').length > 0) throw malformed('krl.reserved', 'is not empty');
  const reading: CertificatesReading = { serials: [], keyIds: new Set(), kept: [], enter };
  while (!reader.isAtEnd) {
    const whole = reader.readWindow(() => readCertificateSection(reader, reading));
    if (keptSections.has(whole[0] as number)) reading.kept.push(whole);
  }
  const { serials, keyIds, kept } = reading;
  return { authority, serials, keyIds, kept };
};

const readCertificateSection = (reader: SshReader, reading: CertificatesReading): void => {
  const type = reader.readByte('section');
  const read = Object.hasOwn(certificateReaders, type) ? certificateReaders[type] : undefined;
  if (read === undefined) throw unsupported('krl.certificates', `has a section of type ${type}, which is not known`);
  reading.enter();
  read(new SshReader(reader.readString('section'), 'krl.certificates'), reading);
};

const certificateReaders: Readonly<Record<number, (reader: SshReader, reading: CertificatesReading) => void>> = Object.freeze({
  [certificateSections.serialList]: (reader, { serials }) => void serials.push(readSerialList(reader)),
  [certificateSections.serialRange]: (reader, { serials }) => void serials.push(readSerialRange(reader)),
  [certificateSections.serialBitmap]: (reader, { serials }) => void serials.push(readSerialBitmap(reader)),
  [certificateSections.keyIds]: (reader, { keyIds, enter }) =>
    readAll(reader, (item) => {
      enter();
      keyIds.add(decodeText(item, 'krl.key_id', 256));
    }),
  [certificateSections.extension]: (reader) => readExtension(reader),
});

/** Serial 0 is that of certificates without one: a list cannot mean it. */
const assertSerial = (serial: bigint): bigint => {
  if (serial === 0n) throw malformed('krl.serial', 'is zero');
  return serial;
};

const readSerialList = (reader: SshReader): RevokedSerials => {
  const bytes = reader.readRest();
  if (bytes.length === 0 || bytes.length % 8 !== 0) throw malformed('krl.certificates.serial', 'is cut short');
  for (let at = 0; at < bytes.length; at += 8) if (bytes.readUInt32BE(at) === 0) assertSerial(BigInt(bytes.readUInt32BE(at + 4)));
  return {
    has(serial) {
      const [high, low] = [Number(serial >> 32n), Number(serial & 0xffff_ffffn)];
      for (let at = 0; at < bytes.length; at += 8) if (bytes.readUInt32BE(at + 4) === low && bytes.readUInt32BE(at) === high) return true;
      return false;
    },
    *ranges() {
      for (let at = 0; at < bytes.length; at += 8) yield { first: bytes.readBigUInt64BE(at), last: bytes.readBigUInt64BE(at) };
    },
  };
};

const readSerialRange = (reader: SshReader): RevokedSerials => {
  const [first, last] = [assertSerial(reader.readU64('first')), reader.readU64('last')];
  reader.close();
  if (last < first) throw malformed('krl.range', 'ends before it begins');
  return { has: (serial) => serial >= first && serial <= last, ranges: () => [{ first, last }] };
};

const readSerialBitmap = (reader: SshReader): RevokedSerials => {
  const offset = reader.readU64('offset');
  const bits = reader.readMpint('bitmap');
  reader.close();
  const isSet = (index: bigint): boolean => {
    if (index < 0n || index >= BigInt(bits.length * 8)) return false;
    const octet = bits[bits.length - 1 - Number(index >> 3n)] as number;
    return ((octet >> Number(index & 7n)) & 1) === 1;
  };
  const top = BigInt(bits.length * 8 - Math.clz32(bits[0] ?? 0) + 24) - 1n;
  if (bits.length === 0 || offset + top > 0xffff_ffff_ffff_ffffn) throw malformed('krl.bitmap', 'is empty, or goes beyond the last serial');
  if (offset === 0n && isSet(0n)) throw malformed('krl.serial', 'is zero');
  return { has: (serial) => isSet(serial - offset), ranges: () => [] };
};

/** Why a certificate or key is revoked. */
export type Revocation = 'key' | 'authority' | 'serial' | 'key-id';

/** null: the list says nothing against it. A certificate falls with its key, with its authority, by its serial and by its key id. */
export const findRevocation = (krl: Krl, subject: SshCertificate | SshPublicKey): Revocation | null => {
  if (!('authority' in subject)) return isKeyRevoked(krl, subject) ? 'key' : null;
  if (isKeyRevoked(krl, subject.publicKey)) return 'key';
  if (isKeyRevoked(krl, subject.authority)) return 'authority';
  const sections = krl.certificates.filter(
    ({ authority }) => authority === null || Buffer.compare(authority, subject.authority.blob) === 0,
  );
  if (sections.some(({ keyIds }) => keyIds.has(subject.keyId))) return 'key-id';
  const isListed = subject.serial !== 0n && sections.some(({ serials }) => serials.some((revoked) => revoked.has(subject.serial)));
  return isListed ? 'serial' : null;
};

const isKeyRevoked = ({ keys, keysBySha1 }: Krl, { blob }: SshPublicKey): boolean =>
  keys.has(digest('sha256', blob)) || (keysBySha1.size > 0 && keysBySha1.has(digest('sha1', blob)));
