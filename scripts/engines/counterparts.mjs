/**
 * Programs of others that the tests judge us by. Each is optional: where one is missing, its tests are skipped and say so by name.
 * As root on a Debian machine (a container of CI) they are installed; for everybody else this names what would be.
 */
import { accessSync, constants, existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { runCommand } from '../lib/run-command.mjs';
import { projectRoot } from '../lib/sources.mjs';

/** Debian package → a program of it, by which it is known to be there; or a module of Python. */
const packages = Object.freeze({
  softhsm2: { program: 'softhsm2-util' }, // a PKCS #11 token in software
  opensc: { program: 'pkcs11-tool' }, // makes and reads keys of tokens, independently of us
  'openssh-server': { program: 'sshd' }, // lets in whom a certificate of ours names, and nobody else
  'gnutls-bin': { program: 'certtool' }, // reads, verifies and makes certificates and requests
  swtpm: { program: 'swtpm' }, // TPMs in software
  'tpm2-tools': { program: 'tpm2_createek' }, // speaks to TPMs; what a daemon with one uses too
  chromium: { program: 'chromium' }, // shows the console's pages as people see them
  'python3-cryptography': { module: 'cryptography' }, // the same; any Python that has it will do (test/harness/python.ts)
});

const installWithinMs = 5 * 60_000;

/** @param {string} program */
function findProgram(program) {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin'].filter((folder) => folder !== '');
  return folders.map((folder) => join(folder, program)).find(isExecutable);
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** @param {{ program: string } | { module: string }} sign */
async function isThere(sign) {
  if ('program' in sign) return findProgram(sign.program) !== undefined;
  for (const python of ['python3', '/usr/bin/python3'])
    if ((await runCommand(python, ['-c', `import ${sign.module}`], { timeoutMs: 30_000 })).code === 0) return true;
  return false;
}

/** @param {{ say: (line: string) => void }} options */
export async function ensureCounterparts({ say }) {
  const missing = [];
  for (const [name, sign] of Object.entries(packages)) if (!(await isThere(sign))) missing.push(name);
  if (missing.length === 0) return;
  const names = missing.join(' ');
  if (process.getuid?.() !== 0 || findProgram('apt-get') === undefined)
    return say(`not installed: ${names}; the tests that need them are skipped by name (Debian: apt-get install ${names})`);
  say(`installing ${names} …`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  await runCommand('apt-get', ['update', '-qq'], { env, timeoutMs: installWithinMs });
  const done = await runCommand('apt-get', ['install', '-y', '-qq', '--no-install-recommends', ...missing], {
    env,
    timeoutMs: installWithinMs,
  });
  if (done.code !== 0) say(`apt-get cannot install ${names} (exit code ${done.code}); the tests that need them are skipped by name`);
}

/**
 * The one native module, PKCS #11. npm installs without scripts here, so it is built on purpose, where a compiler is; without it keys
 * in tokens cannot be used and nothing else changes.
 *
 * @param {{ say: (line: string) => void }} options
 */
export async function ensureTokenBinding({ say }) {
  const folder = join(projectRoot, 'node_modules', 'pkcs11js');
  if (!existsSync(folder) || existsSync(join(folder, 'build', 'Release', 'pkcs11.node'))) return;
  const missing = ['g++', 'make', 'python3'].filter((program) => findProgram(program) === undefined);
  if (missing.length > 0) return say(`pkcs11js is not built (no ${missing.join(', ')}); its tests are skipped by name`);
  say('building pkcs11js …');
  // Headers that came with Node spare a download.
  const prefix = dirname(dirname(process.execPath));
  const headers = existsSync(join(prefix, 'include', 'node', 'node.h')) ? { npm_config_nodedir: prefix } : {};
  const done = await runCommand('npm', ['rebuild', 'pkcs11js'], {
    cwd: projectRoot,
    env: { ...process.env, ...headers, npm_config_ignore_scripts: 'false' },
    timeoutMs: installWithinMs,
  });
  if (done.code !== 0 || !existsSync(join(folder, 'build', 'Release', 'pkcs11.node')))
    say(`pkcs11js cannot be built (exit code ${done.code}); its tests are skipped by name`);
}
