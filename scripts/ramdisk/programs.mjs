/** Programs of this machine with the libraries they need, at the paths where they look for them. */
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { SetupError } from '../lib/failure.mjs';
import { runCommand } from '../lib/run-command.mjs';
import { modes } from './cpio.mjs';

/** What each program is for, and the package that has it. One that is missing is said in the manifest: the ramdisk then does without. */
export const tools = Object.freeze({
  flock: { package: 'util-linux', needed: true, for: 'bcd, which keeps two of itself out of one folder' },
  kexec: { package: 'kexec-tools', for: 'boot.kexec without going through the firmware' },
  zstd: { package: 'zstd', for: 'images compressed with zstd' },
  'qemu-img': { package: 'qemu-utils', for: 'images in qcow2' },
  nvme: { package: 'nvme-cli', for: 'NVMe drives that erase themselves' },
  hdparm: { package: 'hdparm', for: 'ATA drives that erase themselves' },
  blkdiscard: { package: 'util-linux', for: 'secure discard' },
});

const folders = (process.env['PATH'] ?? '').split(':').concat('/usr/sbin', '/sbin', '/usr/bin', '/bin');

/** @param {string} name @returns {string | undefined} */
export const findProgram = (name) => folders.map((folder) => join(folder, name)).find((path) => existsSync(path));

/** busybox, which must need no libraries: it is there before any. */
export async function busybox() {
  const path = findProgram('busybox');
  if (path === undefined) throw new SetupError('there is no busybox', 'apt-get install busybox-static');
  if ((await librariesOf(path)).length > 0) throw new SetupError(`${path} is not static`, 'apt-get install busybox-static');
  return readFileSync(path);
}

/** A program as `to`, with its libraries. @param {string} path @param {string} to */
export async function programEntries(path, to) {
  const own = { path: to, mode: modes.program, content: readFileSync(realpathSync(path)) };
  const libraries = await librariesOf(path);
  return [
    own,
    ...libraries.map((library) => ({ path: library.slice(1), mode: modes.program, content: readFileSync(realpathSync(library)) })),
  ];
}

/** @param {string} path @returns {Promise<string[]>} */
async function librariesOf(path) {
  const { code, out, err } = await runCommand('ldd', [path]);
  if (/not a dynamic executable|statically linked/.test(out + err)) return [];
  if (code !== 0) throw new SetupError(`ldd ${path} failed: ${err.trim()}`, 'is it a program of this machine?');
  if (/not found/.test(out)) throw new SetupError(`${path} lacks libraries: ${out.trim()}`, 'reinstall its package');
  return [...out.matchAll(/(?:=> )?(\/\S+) \(0x/g)].map((found) => found[1]);
}
