/**
 * Writes a revocation list: sections in order, each authority once, serials merged; then reads it back before it leaves. What a list
 * goes on from is merged too, so a list that is added to a thousand times has as many sections as one that is written at once.
 */
import { createHash } from 'node:crypto';
import { certificateSections, type Krl, krlMagic, krlSections, maxKrlBytes, parseKrl, type SerialRange } from './krl.ts';
import type { SshPublicKey } from './public-key.ts';
import { invalid } from './refusals.ts';
import { encodeString, encodeU32, encodeU64, isOneLine } from './wire.ts';

export interface KrlContent {
  /** A list that this one goes on from: what it revokes stays revoked. */
  readonly base?: Krl;
  readonly version: bigint;
  /** Unix milliseconds. */
  readonly generatedAt: number;
  readonly comment: string;
  /** Certificates of one authority each. */
  readonly certificates: readonly {
    readonly authority: SshPublicKey;
    readonly serials: readonly bigint[];
    readonly keyIds: readonly string[];
  }[];
  /** Keys that are revoked whatever certifies them. */
  readonly keys: readonly SshPublicKey[];
}

/**
 * INVALID_INPUT for a serial out of range, a key id that is no line, a version that is not above that of the base, and a list of
 * more than 1 MiB.
 */
export const createKrl = (content: KrlContent): { readonly bytes: Uint8Array; readonly krl: Krl } => {
  if (!isOneLine(content.comment)) throw invalid('comment', 'is not one line');
  if (content.base !== undefined && content.version <= content.base.version)
    throw invalid('version', `is not above ${content.base.version}, that of the list it goes on from`);
  const sections = [...certificateSectionsOf(content), ...keySectionsOf(content), ...extensionsOf(content)];
  const bytes = Buffer.concat([
    krlMagic,
    encodeU32(1),
    encodeU64(content.version),
    encodeU64(BigInt(Math.floor(content.generatedAt / 1_000))),
    encodeU64(0n),
    encodeString(''),
    encodeString(content.comment),
    ...sections,
  ]);
  if (bytes.length > maxKrlBytes) throw invalid('certificates', `make a list of more than ${maxKrlBytes} bytes`);
  return { bytes, krl: parseKrl(bytes) };
};

const section = (type: number, content: Uint8Array): Buffer => Buffer.concat([Uint8Array.of(type), encodeString(content)]);

interface Merged {
  /** Empty: certificates of every authority. */
  readonly authority: Uint8Array;
  readonly ranges: SerialRange[];
  readonly keyIds: Set<string>;
  /** Hex → the section as it came. */
  readonly kept: Map<string, Uint8Array>;
}

/** One section an authority, in the order of their keys: the same content gives the same bytes. */
const certificateSectionsOf = ({ base, certificates }: KrlContent): Buffer[] => {
  const merged = new Map<string, Merged>();
  const of = (authority: Uint8Array): Merged => {
    const id = Buffer.from(authority).toString('hex');
    const known = merged.get(id) ?? { authority, ranges: [], keyIds: new Set<string>(), kept: new Map<string, Uint8Array>() };
    merged.set(id, known);
    return known;
  };
  for (const { authority, serials, keyIds, kept } of base?.certificates ?? []) {
    const into = of(authority ?? new Uint8Array());
    for (const revoked of serials) for (const range of revoked.ranges()) into.ranges.push(range);
    for (const keyId of keyIds) into.keyIds.add(keyId);
    for (const whole of kept) into.kept.set(Buffer.from(whole).toString('hex'), whole);
  }
  for (const { authority, serials, keyIds } of certificates) {
    const into = of(authority.blob);
    for (const serial of serials) into.ranges.push(rangeOf(serial));
    for (const keyId of keyIds) into.keyIds.add(keyId);
  }
  return [...merged.keys()].sort().flatMap((id) => sectionOf(merged.get(id) as Merged));
};

const sectionOf = ({ authority, ranges, keyIds, kept }: Merged): Buffer[] => {
  const parts = [...serialSections(ranges), ...kept.values(), ...keyIdSection([...keyIds])];
  return parts.length === 0
    ? []
    : [section(krlSections.certificates, Buffer.concat([encodeString(authority), encodeString(''), ...parts]))];
};

const maxSerial = 0xffff_ffff_ffff_ffffn;

const rangeOf = (serial: bigint): SerialRange => {
  if (serial < 1n || serial > maxSerial) throw invalid('serials', `${serial} is no serial: 1 to ${maxSerial}`);
  return { first: serial, last: serial };
};

/** Runs of neighbours as ranges, the rest as one list. */
const serialSections = (all: readonly SerialRange[]): Buffer[] => {
  const runs: { first: bigint; last: bigint }[] = [];
  for (const { first, last } of [...all].sort((a, b) => (a.first < b.first ? -1 : 1))) {
    const run = runs.at(-1);
    if (run === undefined || first > run.last + 1n) runs.push({ first, last });
    else if (last > run.last) run.last = last;
  }
  const single = runs.filter(({ first, last }) => first === last).map(({ first }) => encodeU64(first));
  const ranges = runs.filter(({ first, last }) => first !== last);
  return [
    ...(single.length === 0 ? [] : [section(certificateSections.serialList, Buffer.concat(single))]),
    ...ranges.map(({ first, last }) => section(certificateSections.serialRange, Buffer.concat([encodeU64(first), encodeU64(last)]))),
  ];
};

const keyIdSection = (keyIds: readonly string[]): Buffer[] => {
  if (keyIds.some((keyId) => keyId === '' || Buffer.byteLength(keyId) > 256 || !isOneLine(keyId)))
    throw invalid('keyIds', 'holds one that is not a line of 1 to 256 bytes');
  return keyIds.length === 0
    ? []
    : [section(certificateSections.keyIds, Buffer.concat([...keyIds].sort().map((keyId) => encodeString(keyId))))];
};

/** By fingerprint, in numeric order. */
const keySectionsOf = ({ base, keys }: KrlContent): Buffer[] => {
  const digests = keys.map(({ blob }) => createHash('sha256').update(blob).digest('hex'));
  return [
    ...fingerprints(krlSections.sha1, base?.keysBySha1 ?? []),
    ...fingerprints(krlSections.sha256, [...(base?.keys ?? []), ...digests]),
  ];
};

const fingerprints = (type: number, hex: Iterable<string>): Buffer[] => {
  const all = [...new Set(hex)].sort();
  return all.length === 0 ? [] : [section(type, Buffer.concat(all.map((one) => encodeString(Buffer.from(one, 'hex')))))];
};

const extensionsOf = ({ base }: KrlContent): Buffer[] =>
  [...new Map((base?.extensions ?? []).map((whole) => [Buffer.from(whole).toString('hex'), whole])).values()].map((whole) =>
    section(krlSections.extension, Buffer.from(whole)),
  );
