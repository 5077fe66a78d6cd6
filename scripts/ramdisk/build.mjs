/**
 * `npm run ramdisk`: what machines boot from the network, in one folder: vmlinuz, initramfs.gz, manifest.json.
 *
 * Debian's kernel, busybox, the Node runtime of this machine with its libraries, and bcd as one file. The archive is the same for the
 * same inputs: names sorted, no dates. The manifest names the SHA-256 of every file; boot.prepareRamdisk takes those of the two artefacts.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { bundledDaemon } from '../bcd.mjs';
import { runScript, SetupError } from '../lib/failure.mjs';
import { projectRoot } from '../lib/sources.mjs';
import { encodeCpio, modes, withFolders } from './cpio.mjs';
import { kernelOf } from './kernel.mjs';
import { pluginEntries } from './plugins.mjs';
import { busybox, findProgram, programEntries, tools } from './programs.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));

/** @param {Uint8Array} bytes */
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
/** @param {string} text */
const text = (text) => Buffer.from(text, 'utf8');

/**
 * @param {{ out?: string, cache?: string, flavour?: string, plugins?: string }} [options] plugins: a folder of them, as of a machine (docs/plugins.md)
 * @returns {Promise<{ folder: string, manifest: Manifest }>}
 * @typedef {{ format: string, kernel: { version: string, sha256: string, bytes: number }, initramfs: { sha256: string, bytes: number },
 *   missing: { program: string, package: string, for: string }[], modules: string[], files: { path: string, mode: string, bytes: number, sha256: string }[] }} Manifest
 */
export async function buildRamdisk({
  out = join(projectRoot, '.better-compute', 'ramdisk'),
  cache = join(projectRoot, '.cache', 'ramdisk'),
  flavour = 'linux-image-cloud-amd64',
  plugins,
} = {}) {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    throw new SetupError(
      `the ramdisk is built on Linux x64, this is ${process.platform} ${process.arch}`,
      'build it on a machine like those that boot it',
    );
  mkdirSync(cache, { recursive: true });
  mkdirSync(out, { recursive: true });
  const kernel = await kernelOf({ cache, flavour });
  const { found, missing } = await toolEntries();
  const entries = withFolders([
    ...kernel.entries,
    ...found,
    ...(plugins === undefined ? [] : pluginEntries(plugins)),
    ...(await programEntries(process.execPath, 'usr/bin/node')),
    { path: 'usr/lib/bcd.mjs', mode: modes.file, content: await bundledDaemon() },
    { path: 'bin/busybox', mode: modes.program, content: await busybox() },
    { path: 'init', mode: modes.program, content: readFileSync(join(here, 'init.sh')) },
    { path: 'etc/udhcpc.script', mode: modes.program, content: readFileSync(join(here, 'udhcpc.sh')) },
    { path: 'etc/modules-in-order', mode: modes.file, content: text(kernel.modules.map((name) => `${name}\n`).join('')) },
    { path: 'etc/ramdisk-version', mode: modes.file, content: text(`kernel ${kernel.version}, node ${process.version}\n`) },
    { path: 'dev/console', mode: modes.character, device: [5, 1] },
    { path: 'dev/null', mode: modes.character, device: [1, 3] },
    ...['proc', 'sys', 'run', 'tmp', 'root', 'usr/sbin', 'var/lib'].map((path) => ({ path, mode: modes.folder })),
  ]);
  const initramfs = gzipSync(encodeCpio(entries), { level: 6 });
  // Nothing of the moment goes into the gzip header: Node writes no date there.
  const manifest = {
    format: 'better-compute/ramdisk/1',
    kernel: { version: kernel.version, sha256: sha256(kernel.image), bytes: kernel.image.length },
    initramfs: { sha256: sha256(initramfs), bytes: initramfs.length },
    missing,
    modules: kernel.modules,
    files: entries.map(({ path, mode, content = Buffer.alloc(0) }) => ({
      path,
      mode: mode.toString(8),
      bytes: content.length,
      sha256: sha256(content),
    })),
  };
  put(out, 'vmlinuz', kernel.image);
  put(out, 'initramfs.gz', initramfs);
  put(out, 'manifest.json', text(`${JSON.stringify(manifest, null, 2)}\n`));
  return { folder: out, manifest };
}

/** @param {string} folder @param {string} name @param {Buffer} content */
function put(folder, name, content) {
  writeFileSync(join(folder, `${name}.new`), content);
  renameSync(join(folder, `${name}.new`), join(folder, name));
}

async function toolEntries() {
  const found = [];
  const missing = [];
  for (const [program, { package: name, for: purpose, ...rest }] of Object.entries(tools)) {
    const path = findProgram(program);
    if (path === undefined && 'needed' in rest) throw new SetupError(`there is no ${program}: ${purpose}`, `apt-get install ${name}`);
    if (path === undefined) missing.push({ program, package: name, for: purpose });
    else found.push(...(await programEntries(path, `usr/sbin/${program}`)));
  }
  return { found, missing };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await runScript(async () => {
    const { values } = parseArgs({
      options: { out: { type: 'string' }, plugins: { type: 'string' }, 'kernel-package': { type: 'string' } },
    });
    const { out, plugins, 'kernel-package': flavour } = values;
    const { folder, manifest } = await buildRamdisk({
      ...(out === undefined ? {} : { out }),
      ...(flavour === undefined ? {} : { flavour }),
      ...(plugins === undefined ? {} : { plugins }),
    });
    for (const { program, package: name, for: purpose } of manifest.missing)
      process.stderr.write(`without ${program} (package ${name}): ${purpose}\n`);
    const megabytes = (/** @type {number} */ bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
    process.stderr.write(
      `kernel ${manifest.kernel.version}, ${megabytes(manifest.kernel.bytes)}; initramfs ${megabytes(manifest.initramfs.bytes)}, ${manifest.files.length} files\n`,
    );
    process.stdout.write(`${folder}\n`);
  });
}
