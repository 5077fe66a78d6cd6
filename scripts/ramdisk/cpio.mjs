/**
 * A cpio archive (newc) as the kernel unpacks it at boot. The same tree gives the same bytes: sorted names, no dates, owner root,
 * inodes counted. Written here because cpio is missing on many machines, and device nodes need no root this way.
 */

/** @typedef {{ path: string, mode: number, content?: Buffer, device?: [number, number] }} Entry */

export const modes = Object.freeze({ folder: 0o040755, file: 0o100644, program: 0o100755, link: 0o120777, character: 0o020600 });

/** @param {Entry[]} entries in any order; folders on the way are added @returns {Buffer} */
export function encodeCpio(entries) {
  const all = withFolders(entries);
  const chunks = all.flatMap((entry, at) => encodeEntry(entry, at + 1));
  return Buffer.concat([...chunks, ...encodeEntry({ path: 'TRAILER!!!', mode: 0 }, 0)]);
}

/** @param {Entry[]} entries @returns {Entry[]} sorted by path: a folder comes before what is in it */
export function withFolders(entries) {
  const byPath = new Map(entries.map((entry) => [entry.path, entry]));
  for (const { path } of entries) {
    const parts = path.split('/');
    for (let length = 1; length < parts.length; length += 1) {
      const folder = parts.slice(0, length).join('/');
      if (!byPath.has(folder)) byPath.set(folder, { path: folder, mode: modes.folder });
    }
  }
  return [...byPath.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** @param {Entry} entry @param {number} inode @returns {Buffer[]} */
function encodeEntry({ path, mode, content = Buffer.alloc(0), device = [0, 0] }, inode) {
  const name = Buffer.from(`${path}\0`, 'utf8');
  const fields = [inode, mode, 0, 0, 1, 0, content.length, 0, 0, device[0], device[1], name.length, 0];
  const header = Buffer.from(`070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}`, 'latin1');
  return [...padded(Buffer.concat([header, name])), ...padded(content)];
}

/** @param {Buffer} bytes */
const padded = (bytes) => [bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)];
