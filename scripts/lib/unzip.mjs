/**
 * Takes one file out of a ZIP archive (a Python wheel is one): enough of the format for that, and nothing to install.
 * The archive's own SHA-256 is checked by the caller, so its structure is trusted, but not its size fields beyond the buffer.
 */
import { inflateRawSync } from 'node:zlib';

const endOfDirectory = 0x06054b50;
const directoryEntry = 0x02014b50;
const stored = 0;
const deflated = 8;

/**
 * @param {Buffer} archive
 * @param {(name: string) => boolean} wanted
 * @returns {Buffer | null} null when no entry is wanted
 */
export function readFromZip(archive, wanted) {
  const end = archive.lastIndexOf(Buffer.from([0x50, 0x4b, 0x05, 0x06]));
  if (end < 0 || archive.readUInt32LE(end) !== endOfDirectory) throw new Error('not a ZIP archive');
  let at = archive.readUInt32LE(end + 16);
  for (let left = archive.readUInt16LE(end + 10); left > 0; left--) {
    if (archive.readUInt32LE(at) !== directoryEntry) throw new Error('the ZIP directory is damaged');
    const [nameLength, extraLength, commentLength] = [28, 30, 32].map((offset) => archive.readUInt16LE(at + offset));
    const name = archive.toString('utf8', at + 46, at + 46 + nameLength);
    if (wanted(name)) return contents(archive, at);
    at += 46 + nameLength + extraLength + commentLength;
  }
  return null;
}

function contents(archive, entry) {
  const method = archive.readUInt16LE(entry + 10);
  const size = archive.readUInt32LE(entry + 20);
  const local = archive.readUInt32LE(entry + 42);
  const start = local + 30 + archive.readUInt16LE(local + 26) + archive.readUInt16LE(local + 28);
  const bytes = archive.subarray(start, start + size);
  if (method === stored) return bytes;
  if (method === deflated) return inflateRawSync(bytes);
  throw new Error(`ZIP method ${method} is not supported`);
}
