/**
 * GUID partition tables, as much as deploying an image needs (UEFI 2.10, chapter 5): read the one of an image, let a partition take the
 * rest of a larger disk, put a small one behind it, write both copies.
 *
 * The input is an image that somebody made: every field is bounded before it is used, both checksums must hold.
 */
import { crc32 } from 'node:zlib';
import { ControlError } from '../../../domain/errors.ts';

export interface GptPartition {
  /** From 1, as tools count. */
  readonly number: number;
  readonly typeGuid: Uint8Array;
  readonly guid: Uint8Array;
  /** Logical blocks, both inclusive. */
  readonly first: number;
  readonly last: number;
  readonly attributes: bigint;
  readonly name: string;
}

export interface Gpt {
  readonly blockBytes: number;
  readonly diskGuid: Uint8Array;
  readonly firstUsable: number;
  readonly lastUsable: number;
  readonly entryCount: number;
  readonly entryBytes: number;
  readonly partitions: readonly GptPartition[];
}

const signature = Buffer.from('EFI PART', 'latin1');
const headerBytes = 92;
const tableMaxBytes = 128 * 1024;

const bad = (message: string): ControlError =>
  new ControlError('UNSUPPORTED', `the image's partition table cannot be used: ${message}`, { details: { reason: 'partition-table' } });

/**
 * Reads the primary table at the start of an image.
 *
 * @param head at least 64 KiB, from byte 0
 * @throws UNSUPPORTED `partition-table` where there is none, or one that is damaged or made for another block size
 */
export function parseGpt(head: Buffer, blockBytes: number): Gpt {
  const header = head.subarray(blockBytes, 2 * blockBytes);
  if (!header.subarray(0, 8).equals(signature)) {
    const other = [512, 4096].find((size) => size !== blockBytes && head.subarray(size, size + 8).equals(signature));
    throw bad(other === undefined ? 'it is not GPT' : `it was made for blocks of ${other} bytes, the disk has ${blockBytes}`);
  }
  const size = header.readUInt32LE(12);
  if (size < headerBytes || size > blockBytes) throw bad(`its header says ${size} bytes`);
  const unsummed = Buffer.from(header.subarray(0, size));
  unsummed.writeUInt32LE(0, 16);
  if (crc32(unsummed) !== header.readUInt32LE(16)) throw bad('the checksum of its header does not hold');
  const [entryCount, entryBytes] = [header.readUInt32LE(80), header.readUInt32LE(84)];
  const at = safeNumber(header.readBigUInt64LE(72)) * blockBytes;
  const bytes = entryCount * entryBytes;
  if (entryBytes < 128 || entryBytes % 8 !== 0 || bytes > tableMaxBytes || at + bytes > head.length)
    throw bad('its list of partitions has an impossible size');
  const table = head.subarray(at, at + bytes);
  if (crc32(table) !== header.readUInt32LE(88)) throw bad('the checksum of its partitions does not hold');
  const firstUsable = safeNumber(header.readBigUInt64LE(40));
  if (firstUsable < 2 + Math.ceil(bytes / blockBytes)) throw bad('its first partition may begin inside of its list of partitions');
  return {
    blockBytes,
    diskGuid: Buffer.from(header.subarray(56, 72)),
    firstUsable,
    lastUsable: safeNumber(header.readBigUInt64LE(48)),
    entryCount,
    entryBytes,
    partitions: readPartitions(table, { entryCount, entryBytes }),
  };
}

function readPartitions(table: Buffer, { entryCount, entryBytes }: Pick<Gpt, 'entryCount' | 'entryBytes'>): GptPartition[] {
  const found: GptPartition[] = [];
  for (let at = 0; at < entryCount; at += 1) {
    const entry = table.subarray(at * entryBytes, (at + 1) * entryBytes);
    if (entry.subarray(0, 16).every((byte) => byte === 0)) continue;
    const [first, last] = [safeNumber(entry.readBigUInt64LE(32)), safeNumber(entry.readBigUInt64LE(40))];
    if (last < first) throw bad(`partition ${at + 1} ends before it begins`);
    const name = entry.subarray(56, 128).toString('utf16le').replace(/\0.*$/s, '');
    const [typeGuid, guid] = [Buffer.from(entry.subarray(0, 16)), Buffer.from(entry.subarray(16, 32))];
    found.push({ number: at + 1, typeGuid, guid, first, last, attributes: entry.readBigUInt64LE(48), name });
  }
  return found;
}

function safeNumber(value: bigint): number {
  if (value > 2n ** 52n) throw bad(`it names block ${value}`);
  return Number(value);
}

export interface GptChange {
  readonly diskBytes: number;
  /** Number of the partition that takes what is left; 0: none. */
  readonly grow: number;
  /** A partition at the end of the disk; null: none. */
  readonly append: { readonly bytes: number; readonly name: string; readonly guid: Uint8Array } | null;
}

const mebibyte = 1024 * 1024;
/** Microsoft basic data: what holds a FAT. */
const basicData = Buffer.from('a2a0d0ebe5b9334487c068b6b72699c7', 'hex');

/**
 * The table for a disk that may be larger than the image.
 *
 * @throws UNSUPPORTED when the partition to grow is not there or is not the last one; INVALID_STATE `target-full` when there is no room
 */
export function changeGpt(gpt: Gpt, { diskBytes, grow, append }: GptChange): { gpt: Gpt; appended: GptPartition | null } {
  const { blockBytes } = gpt;
  const tableBlocks = Math.ceil((gpt.entryCount * gpt.entryBytes) / blockBytes);
  const lastUsable = Math.floor(diskBytes / blockBytes) - 2 - tableBlocks;
  const end = Math.max(...gpt.partitions.map(({ last }) => last), gpt.firstUsable - 1);
  if (end > lastUsable) throw noRoom(`its partitions end at block ${end}, the disk has room up to ${lastUsable}`);
  const appended = append === null ? null : appendedPartition(gpt, { append, lastUsable, end });
  const grown = grow === 0 ? gpt.partitions : growLast(gpt, { number: grow, to: appended === null ? lastUsable : appended.first - 1 });
  const partitions = appended === null ? grown : [...grown, appended];
  return { gpt: { ...gpt, lastUsable, partitions }, appended };
}

function appendedPartition(
  gpt: Gpt,
  { append, lastUsable, end }: { append: NonNullable<GptChange['append']>; lastUsable: number; end: number },
): GptPartition {
  const blocks = Math.ceil(append.bytes / gpt.blockBytes);
  const alignment = mebibyte / gpt.blockBytes;
  const first = Math.floor((lastUsable + 1 - blocks) / alignment) * alignment;
  if (first <= end) throw noRoom(`there is no room for ${append.bytes} bytes of configuration behind its last partition`);
  const taken = new Set(gpt.partitions.map(({ number }) => number));
  const number = Array.from({ length: gpt.entryCount }, (_, at) => at + 1).find((one) => !taken.has(one));
  if (number === undefined) throw bad('it has no free entry for the configuration');
  return { number, typeGuid: basicData, guid: append.guid, first, last: first + blocks - 1, attributes: 0n, name: append.name };
}

function growLast({ partitions, blockBytes }: Gpt, { number, to }: { number: number; to: number }): readonly GptPartition[] {
  const wanted = partitions.find((one) => one.number === number);
  if (wanted === undefined)
    throw bad(`it has no partition ${number} to grow (there are ${partitions.map((one) => one.number).join(', ')})`);
  const behind = partitions.find(({ first }) => first > wanted.last);
  if (behind !== undefined) throw bad(`partition ${number} cannot grow: partition ${behind.number} lies behind it`);
  const alignment = mebibyte / blockBytes;
  const last = Math.max(wanted.last, Math.floor((to + 1) / alignment) * alignment - 1);
  return partitions.map((one) => (one === wanted ? { ...one, last: Math.min(last, to) } : one));
}

const noRoom = (message: string): ControlError =>
  new ControlError('INVALID_STATE', `the image does not fit: ${message}`, { details: { reason: 'target-full' } });

export interface EncodedGpt {
  /** Header and list of the first copy, at block 1. */
  readonly primary: Buffer;
  /** List and header of the second copy. */
  readonly backup: { readonly offset: number; readonly bytes: Buffer };
}

/** Both copies for a disk of this size. The protective MBR is not part of it. */
export function encodeGpt(gpt: Gpt, diskBytes: number): EncodedGpt {
  const { blockBytes } = gpt;
  const lastBlock = Math.floor(diskBytes / blockBytes) - 1;
  const table = encodeTable(gpt);
  const tableBlocks = table.length / blockBytes;
  const header = (own: number, other: number, tableAt: number): Buffer => encodeHeader(gpt, { own, other, tableAt, table });
  return {
    primary: Buffer.concat([header(1, lastBlock, 2), table]),
    backup: {
      offset: (lastBlock - tableBlocks) * blockBytes,
      bytes: Buffer.concat([table, header(lastBlock, 1, lastBlock - tableBlocks)]),
    },
  };
}

function encodeTable({ entryCount, entryBytes, blockBytes, partitions }: Gpt): Buffer {
  const table = Buffer.alloc(Math.ceil((entryCount * entryBytes) / blockBytes) * blockBytes);
  for (const { number, typeGuid, guid, first, last, attributes, name } of partitions) {
    const entry = table.subarray((number - 1) * entryBytes, number * entryBytes);
    entry.set(typeGuid, 0);
    entry.set(guid, 16);
    entry.writeBigUInt64LE(BigInt(first), 32);
    entry.writeBigUInt64LE(BigInt(last), 40);
    entry.writeBigUInt64LE(attributes, 48);
    entry.write(name.slice(0, 36), 56, 'utf16le');
  }
  return table;
}

function encodeHeader(gpt: Gpt, { own, other, tableAt, table }: { own: number; other: number; tableAt: number; table: Buffer }): Buffer {
  const header = Buffer.alloc(gpt.blockBytes);
  signature.copy(header);
  header.writeUInt32LE(0x00010000, 8);
  header.writeUInt32LE(headerBytes, 12);
  header.writeBigUInt64LE(BigInt(own), 24);
  header.writeBigUInt64LE(BigInt(other), 32);
  header.writeBigUInt64LE(BigInt(gpt.firstUsable), 40);
  header.writeBigUInt64LE(BigInt(gpt.lastUsable), 48);
  header.set(gpt.diskGuid, 56);
  header.writeBigUInt64LE(BigInt(tableAt), 72);
  header.writeUInt32LE(gpt.entryCount, 80);
  header.writeUInt32LE(gpt.entryBytes, 84);
  header.writeUInt32LE(crc32(table.subarray(0, gpt.entryCount * gpt.entryBytes)), 88);
  header.writeUInt32LE(crc32(header.subarray(0, headerBytes)), 16);
  return header;
}

/** The protective MBR of an image, made to cover a disk of this size. */
export function protectiveMbr(mbr: Buffer, { diskBytes, blockBytes }: { diskBytes: number; blockBytes: number }): Buffer {
  const changed = Buffer.from(mbr);
  for (let at = 446; at < 510; at += 16) {
    if (changed[at + 4] !== 0xee) continue;
    const blocks = Math.floor(diskBytes / blockBytes) - changed.readUInt32LE(at + 8);
    changed.writeUInt32LE(Math.min(blocks, 0xffffffff), at + 12);
  }
  return changed;
}
