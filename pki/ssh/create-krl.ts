/** Writes a revocation list: sections in order, each authority once, serials merged; then reads it back before it leaves. */
import { createHash } from 'node:crypto';
import { certificateSections, type Krl, krlMagic, krlSections, maxKrlBytes, parseKrl } from './krl.ts';
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
  const sections = [content.base?.body ?? new Uint8Array(), ...certificateSectionsOf(content), ...keySectionOf(content.keys)];
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

/** One section an authority, in the order of their keys: the same content gives the same bytes. */
const certificateSectionsOf = ({ certificates }: KrlContent): Buffer[] => {
  const merged = new Map<string, { authority: SshPublicKey; serials: Set<bigint>; keyIds: Set<string> }>();
  for (const { authority, serials, keyIds } of certificates) {
    const id = Buffer.from(authority.blob).toString('hex');
    const of = merged.get(id) ?? { authority, serials: new Set<bigint>(), keyIds: new Set<string>() };
    for (const serial of serials) of.serials.add(serial);
    for (const keyId of keyIds) of.keyIds.add(keyId);
    merged.set(id, of);
  }
  return [...merged.keys()].sort().flatMap((id) => {
    const { authority, serials, keyIds } = merged.get(id) as { authority: SshPublicKey; serials: Set<bigint>; keyIds: Set<string> };
    const parts = [...serialSections([...serials]), ...keyIdSection([...keyIds])];
    if (parts.length === 0) return [];
    return [section(krlSections.certificates, Buffer.concat([encodeString(authority.blob), encodeString(''), ...parts]))];
  });
};

const maxSerial = 0xffff_ffff_ffff_ffffn;

/** Runs of neighbours as ranges, the rest as one list. */
const serialSections = (serials: readonly bigint[]): Buffer[] => {
  const bad = serials.find((serial) => serial < 1n || serial > maxSerial);
  if (bad !== undefined) throw invalid('serials', `${bad} is no serial: 1 to ${maxSerial}`);
  const runs: { first: bigint; last: bigint }[] = [];
  for (const serial of [...serials].sort((a, b) => (a < b ? -1 : 1))) {
    const run = runs.at(-1);
    if (run !== undefined && serial === run.last + 1n) run.last = serial;
    else runs.push({ first: serial, last: serial });
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
const keySectionOf = (keys: readonly SshPublicKey[]): Buffer[] => {
  const digests = [...new Set(keys.map(({ blob }) => createHash('sha256').update(blob).digest('hex')))].sort();
  return digests.length === 0
    ? []
    : [section(krlSections.sha256, Buffer.concat(digests.map((hex) => encodeString(Buffer.from(hex, 'hex')))))];
};
