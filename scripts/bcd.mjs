/**
 * bcd and all it imports as one file, without a build before: for a machine in its ramdisk, which has no node_modules, and for a release,
 * which a daemon puts in the place of its own program. It needs node on the machine, and a name without an ending, by which node would judge it.
 *
 *   npm run bcd -- --out release/bcd [--release 0.2.0]
 *
 * `better-compute daemon sign-release` signs it.
 */
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, extname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { runScript, SetupError } from './lib/failure.mjs';
import { projectRoot } from './lib/sources.mjs';

const requireOfModules = "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";

/** What package.json says. */
export const daemonVersion = () => JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')).version;

/**
 * @param {{ version?: string, executable?: boolean }} [options] `executable`: begins with the line that names node
 * @returns {Promise<Buffer>}
 */
export async function bundledDaemon({ version = daemonVersion(), executable = false } = {}) {
  const { build } = await import('esbuild');
  const { outputFiles } = await build({
    entryPoints: [join(projectRoot, 'daemon', 'main.ts')],
    absWorkingDir: projectRoot,
    bundle: true,
    write: false,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    legalComments: 'none',
    logLevel: 'error',
    define: { bcdBundleVersion: JSON.stringify(version) },
    banner: { js: requireOfModules },
  });
  const text = new TextDecoder().decode(outputFiles[0]?.contents);
  // esbuild keeps the entry's own first line, if there is one, at the very beginning.
  const body = text.replace(/^#![^\n]*\n/, '');
  return Buffer.from(executable ? `#!/usr/bin/env node\n${body}` : body);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await runScript(async () => {
    const { values } = parseArgs({ options: { out: { type: 'string' }, release: { type: 'string' } } });
    const { out, release = daemonVersion() } = values;
    if (out === undefined) throw new SetupError('--out is missing', 'name the file: npm run bcd -- --out ./bcd', { exit: 2 });
    if (!/^\d+\.\d+\.\d+$/.test(release)) throw new SetupError(`--release is "${release}"`, 'give MAJOR.MINOR.PATCH', { exit: 2 });
    const content = await bundledDaemon({ version: release, executable: true });
    const path = resolve(out);
    if (extname(path) !== '')
      throw new SetupError(`--out is "${out}": node would take it for a file of kind ${extname(path)}`, 'name it without a dot: ./bcd', {
        exit: 2,
      });
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(`${path}.new`, content);
    chmodSync(`${path}.new`, 0o755);
    renameSync(`${path}.new`, path);
    process.stdout.write(
      `${path}\nversion ${release}, ${content.length} bytes, SHA-256 ${createHash('sha256').update(content).digest('hex')}\n`,
    );
  });
}
