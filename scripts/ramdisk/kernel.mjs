/** Debian's kernel for machines in clouds and emulators (or another one that is named), with the drivers a ramdisk needs. */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { SetupError } from '../lib/failure.mjs';
import { runCommand } from '../lib/run-command.mjs';
import { modes } from './cpio.mjs';

/** Drivers in the order in which they are tried; one that this kernel has not, or has built in, is passed over. */
const wantedModules = `
  virtio_pci virtio_net virtio_blk virtio_scsi nvme ahci ata_piix sd_mod mpt3sas megaraid_sas smartpqi
  hv_storvsc xen-blkfront e1000 e1000e igb ixgbe i40e ice mlx4_en mlx5_core bnxt_en tg3 ena hv_netvsc vmxnet3
  ext4 xfs btrfs vfat nls_cp437 nls_ascii nls_iso8859-1 af_packet
`
  .trim()
  .split(/\s+/);

/**
 * @param {{ cache: string, flavour: string }} options
 * @returns {Promise<{ version: string, image: Buffer, entries: import('./cpio.mjs').Entry[], modules: string[] }>}
 */
export async function kernelOf({ cache, flavour }) {
  const folder = await unpacked({ cache, flavour });
  const boot = join(folder, 'boot');
  const name = readdirSync(boot).find((file) => file.startsWith('vmlinuz-'));
  if (name === undefined) throw new SetupError(`the package of ${flavour} holds no kernel`, 'name another one with --kernel-package');
  const version = name.slice('vmlinuz-'.length);
  const tree = join(folder, 'lib', 'modules', version);
  const found = inOrder(tree, wantedModules);
  const entries = found.map(({ name: file, content }) => ({ path: `lib/modules/${file}`, mode: modes.file, content }));
  const modules = found.map(({ name: file }) => file);
  return { version, image: readFileSync(join(boot, name)), entries, modules };
}

/** @param {{ cache: string, flavour: string }} options */
async function unpacked({ cache, flavour }) {
  const name = await packageName(flavour);
  const folder = join(cache, name);
  if (existsSync(join(folder, 'boot'))) return folder;
  const aside = join(cache, `${name}.download`);
  rmSync(aside, { recursive: true, force: true });
  mkdirSync(join(aside, 'tree'), { recursive: true });
  const fetched = await runCommand('apt-get', ['download', name], { cwd: aside, timeoutMs: 300_000 });
  const file = readdirSync(aside).find((one) => one.endsWith('.deb'));
  if (fetched.code !== 0 || file === undefined)
    throw new SetupError(
      `apt-get download ${name} failed: ${fetched.err.trim().split('\n')[0]}`,
      'apt-get update, or name a package with --kernel-package',
    );
  const opened = await runCommand('dpkg-deb', ['-x', file, 'tree'], { cwd: aside, timeoutMs: 300_000 });
  if (opened.code !== 0) throw new SetupError(`dpkg-deb -x ${file} failed: ${opened.err.trim()}`, 'is dpkg-deb installed?');
  renameSync(join(aside, 'tree'), folder);
  rmSync(aside, { recursive: true, force: true });
  return folder;
}

/** What a package without a version stands for. @param {string} flavour */
async function packageName(flavour) {
  const { code, out } = await runCommand('apt-cache', ['depends', flavour]);
  if (code !== 0) throw new SetupError(`apt-cache knows no package ${flavour}`, 'apt-get update, or name a package with --kernel-package');
  return /Depends: (linux-image-\d\S*)/.exec(out)?.[1] ?? flavour;
}

/** Name → path and what it needs, as each module says of itself. @param {string} tree */
function modulesOf(tree) {
  const paths = readdirSync(tree, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ko'));
  return new Map(paths.map((path) => [moduleName(path), path]));
}

/** The .modinfo section holds `depends=a,b`, ended by a zero. @param {Buffer} module */
function needsOf(module) {
  const at = module.indexOf('\0depends=');
  if (at === -1) return [];
  const from = at + '\0depends='.length;
  return module
    .toString('latin1', from, module.indexOf(0, from))
    .split(',')
    .filter((name) => name !== '');
}

/** @param {string} path */
const moduleName = (path) => basename(path).replace(/\.ko$/, '').replaceAll('-', '_');

/** Each module after what it needs. @param {string} tree @param {string[]} wanted */
function inOrder(tree, wanted) {
  const known = modulesOf(tree);
  const done = new Map();
  const add = (/** @type {string} */ name) => {
    const path = known.get(moduleName(name));
    if (path === undefined || done.has(path)) return;
    const content = readFileSync(join(tree, path));
    for (const need of needsOf(content)) add(need);
    done.set(path, content);
  };
  for (const name of wanted) add(name);
  return [...done].map(([path, content]) => ({ name: basename(path), content }));
}
