/**
 * A small FAT16 file system with a few files in its root, as cloud-init reads its NoCloud configuration from (label CIDATA), and
 * the way to read one back. Long names by VFAT entries. About 8,000 clusters of one block each, so that it is FAT16 for every reader.
 */
import { ControlError } from '../../../domain/errors.ts';

export type FatFiles = Readonly<Record<string, Uint8Array>>;

const clusters = 8000;
const rootEntries = 512;
const firstCluster = 2;

/** Blocks of each part, for one block size. */
function layout(blockBytes: number) {
  const fatBlocks = Math.ceil(((clusters + firstCluster) * 2) / blockBytes);
  const rootBlocks = (rootEntries * 32) / blockBytes;
  const [fatAt, rootAt] = [1, 1 + 2 * fatBlocks];
  const dataAt = rootAt + rootBlocks;
  return { fatBlocks, fatAt, rootAt, dataAt, blocks: dataAt + clusters };
}

/** Size of the file system in bytes. */
export const fatBytes = (blockBytes: number): number => layout(blockBytes).blocks * blockBytes;

/**
 * The whole file system.
 *
 * @param label up to 11 capital letters
 * @throws FRAME_TOO_LARGE when the files do not fit
 */
export function encodeFat(files: FatFiles, { blockBytes, label, serial }: { blockBytes: number; label: string; serial: number }): Buffer {
  const at = layout(blockBytes);
  const image = Buffer.alloc(at.blocks * blockBytes);
  bootSector(image, { blockBytes, label, serial });
  const fat = image.subarray(at.fatAt * blockBytes, (at.fatAt + at.fatBlocks) * blockBytes);
  fat.writeUInt32LE(0xfffffff8, 0);
  const directory = [volumeEntry(label)];
  let next = firstCluster;
  for (const [name, content] of Object.entries(files)) {
    const count = Math.ceil(content.length / blockBytes);
    if (next + count > clusters + firstCluster)
      throw new ControlError('FRAME_TOO_LARGE', `${name} of ${content.length} bytes does not fit into the configuration`, {
        details: { reason: 'seed-full' },
      });
    for (let one = 0; one < count; one += 1) fat.writeUInt16LE(one === count - 1 ? 0xffff : next + one + 1, (next + one) * 2);
    image.set(content, (at.dataAt + next - firstCluster) * blockBytes);
    directory.push(...fileEntries(name, { cluster: count === 0 ? 0 : next, size: content.length, ordinal: directory.length }));
    next += count;
  }
  image.set(fat, (at.fatAt + at.fatBlocks) * blockBytes);
  const root = Buffer.concat(directory);
  if (root.length > rootEntries * 32)
    throw new ControlError('FRAME_TOO_LARGE', 'too many files for the configuration', { details: { reason: 'seed-full' } });
  image.set(root, at.rootAt * blockBytes);
  return image;
}

function bootSector(image: Buffer, { blockBytes, label, serial }: { blockBytes: number; label: string; serial: number }): void {
  const { fatBlocks, blocks } = layout(blockBytes);
  image.set([0xeb, 0x3c, 0x90], 0);
  image.write('MSDOS5.0', 3, 'latin1');
  image.writeUInt16LE(blockBytes, 11);
  image[13] = 1;
  image.writeUInt16LE(1, 14);
  image[16] = 2;
  image.writeUInt16LE(rootEntries, 17);
  image.writeUInt16LE(blocks, 19);
  image[21] = 0xf8;
  image.writeUInt16LE(fatBlocks, 22);
  image.writeUInt16LE(32, 24);
  image.writeUInt16LE(64, 26);
  image[36] = 0x80;
  image[38] = 0x29;
  image.writeUInt32LE(serial >>> 0, 39);
  image.write(label.padEnd(11).slice(0, 11), 43, 'latin1');
  image.write('FAT16   ', 54, 'latin1');
  image.writeUInt16LE(0xaa55, 510);
}

function volumeEntry(label: string): Buffer {
  const entry = Buffer.alloc(32);
  entry.write(label.padEnd(11).slice(0, 11), 0, 'latin1');
  entry[11] = 0x08;
  return entry;
}

/** The long name, last part first, then the entry itself under a short name nobody else has. */
function fileEntries(name: string, { cluster, size, ordinal }: { cluster: number; size: number; ordinal: number }): Buffer[] {
  const short = Buffer.alloc(32);
  short.write(`FILE~${String(ordinal).padStart(3, '0')}`.padEnd(11), 0, 'latin1');
  short[11] = 0x20;
  // 1 January 1980: the only date that is the same every time.
  short.writeUInt16LE(0x21, 24);
  short.writeUInt16LE(cluster, 26);
  short.writeUInt32LE(size, 28);
  const sum = short.subarray(0, 11).reduce((total, byte) => (((total & 1) << 7) + (total >> 1) + byte) & 0xff, 0);
  const parts = Math.ceil(name.length / 13);
  const long = Array.from({ length: parts }, (_, at) =>
    longEntry(name.slice(at * 13, at * 13 + 13), { number: at + 1, isLast: at === parts - 1, sum }),
  );
  return [...long.toReversed(), short];
}

/** Where the 13 characters of one entry lie. */
const characterOffsets = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];

function longEntry(part: string, { number, isLast, sum }: { number: number; isLast: boolean; sum: number }): Buffer {
  const entry = Buffer.alloc(32);
  entry[0] = number | (isLast ? 0x40 : 0);
  entry[11] = 0x0f;
  entry[13] = sum;
  characterOffsets.forEach((offset, at) =>
    entry.writeUInt16LE(at < part.length ? part.charCodeAt(at) : at === part.length ? 0 : 0xffff, offset),
  );
  return entry;
}

/** The files of a file system that encodeFat made. @throws MALFORMED for another one */
export function readFat(image: Buffer): FatFiles {
  const bad = (): ControlError =>
    new ControlError('MALFORMED', 'this is no configuration that was made here', { details: { reason: 'seed' } });
  if (image.length < 512 || image.readUInt16LE(510) !== 0xaa55) throw bad();
  const blockBytes = image.readUInt16LE(11);
  if ((blockBytes !== 512 && blockBytes !== 4096) || image.length < fatBytes(blockBytes)) throw bad();
  const at = layout(blockBytes);
  const files: Record<string, Uint8Array> = {};
  let name = '';
  for (let offset = at.rootAt * blockBytes; image[offset] !== 0 && offset < at.dataAt * blockBytes; offset += 32) {
    const entry = image.subarray(offset, offset + 32);
    if (entry[11] === 0x0f) name = longPart(entry) + name;
    else if (entry[11] === 0x20) {
      const start = (at.dataAt + entry.readUInt16LE(26) - firstCluster) * blockBytes;
      // Files of ours lie in one piece.
      files[name] = Buffer.from(image.subarray(start, start + entry.readUInt32LE(28)));
      name = '';
    }
  }
  return files;
}

function longPart(entry: Buffer): string {
  const codes = characterOffsets.map((offset) => entry.readUInt16LE(offset));
  const end = codes.findIndex((code) => code === 0 || code === 0xffff);
  return String.fromCharCode(...(end === -1 ? codes : codes.slice(0, end)));
}
