/**
 * Which kernel a deployed system would start, by what its own loader is told: entries of the Boot Loader Specification, else the first
 * entry of GRUB, else the newest kernel that lies in /boot.
 *
 * The file system is an image that somebody made: what it names must lie inside of it, behind links too.
 */
import { readdir, readFile, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../../../domain/errors.ts';

export interface KernelOnDisk {
  readonly kernel: string;
  readonly initrds: readonly string[];
  readonly args: string;
}

const configMaxBytes = 1024 * 1024;

/** undefined when there is none. @param root where the file system is mounted */
export async function findKernel(root: string): Promise<KernelOnDisk | undefined> {
  for (const find of [blsEntry, grubEntry, newestKernel]) {
    const found = await find(root);
    if (found === undefined) continue;
    const { kernel, initrds, args } = found;
    return { kernel: await inside(root, kernel), initrds: await Promise.all(initrds.map((path) => inside(root, path))), args };
  }
  return undefined;
}

/** The last one by name, as loaders sort them. */
async function blsEntry(root: string): Promise<KernelOnDisk | undefined> {
  for (const folder of ['loader/entries', 'boot/loader/entries']) {
    const name = (await names(join(root, folder))).filter((file) => file.endsWith('.conf')).at(-1);
    if (name === undefined) continue;
    const lines = await configLines(join(root, folder, name));
    const values = (key: string): string[] => lines.filter(([word]) => word === key).map(([, rest]) => rest);
    const [kernel] = values('linux');
    if (kernel !== undefined)
      return { kernel, initrds: values('initrd').flatMap((one) => one.split(/\s+/)), args: values('options').join(' ') };
  }
  return undefined;
}

async function grubEntry(root: string): Promise<KernelOnDisk | undefined> {
  for (const path of ['boot/grub/grub.cfg', 'grub/grub.cfg', 'boot/grub2/grub.cfg', 'grub2/grub.cfg']) {
    const lines = await configLines(join(root, path));
    const at = lines.findIndex(([word, rest]) => /^linux(?:16|efi)?$/.test(word) && rest !== '');
    const [kernel = '', ...args] = lines[at]?.[1].split(/\s+/) ?? [];
    if (kernel === '') continue;
    const next = lines.findIndex(([word], later) => later > at && word === 'menuentry');
    const own = lines.slice(at, next === -1 ? undefined : next);
    const initrd = own.find(([word]) => /^initrd(?:16|efi)?$/.test(word))?.[1] ?? '';
    return { kernel, initrds: initrd.split(/\s+/).filter((one) => one !== ''), args: args.join(' ') };
  }
  return undefined;
}

async function newestKernel(root: string): Promise<KernelOnDisk | undefined> {
  for (const folder of ['boot', '']) {
    const files = await names(join(root, folder));
    const kernel = files.filter((file) => file.startsWith('vmlinuz')).at(-1);
    if (kernel === undefined) continue;
    const version = kernel.slice('vmlinuz'.length);
    const initrds = files.filter((file) => [`initrd.img${version}`, `initramfs${version}.img`, `initrd${version}`].includes(file));
    return { kernel: join(folder, kernel), initrds: initrds.slice(0, 1).map((file) => join(folder, file)), args: '' };
  }
  return undefined;
}

/** Versions as people count: 6.10 after 6.9. */
const names = async (folder: string): Promise<string[]> =>
  (await readdir(folder).catch(() => [])).sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));

/** First word and the rest of each line that says something. */
async function configLines(path: string): Promise<(readonly [string, string])[]> {
  const content = await readFile(path).catch(() => Buffer.alloc(0));
  const lines = content.subarray(0, configMaxBytes).toString('utf8').split('\n');
  return lines.flatMap((line) => {
    const found = /^\s*([^\s#]\S*)(?:\s+(.*?))?\s*$/.exec(line);
    return found === null ? [] : [[found[1] ?? '', found[2] ?? ''] as const];
  });
}

async function inside(root: string, path: string): Promise<string> {
  const real = await realpath(join(root, path)).catch(() => '');
  if (real.startsWith(`${await realpath(root)}/`)) return real;
  throw new ControlError('UNSUPPORTED', `the system's loader names ${path}, which is not on its disk`, {
    details: { reason: 'no-kernel' },
  });
}
