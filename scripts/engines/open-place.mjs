/**
 * Where the database's files may lie when we run as root.
 *
 * PostgreSQL refuses to run as root, so as root it runs as an account of its own; that account must be able to enter every
 * folder above its binaries and its data. A checkout under /root or in any folder of mode 700 does not allow that. Then both
 * go to an open place beside the system's other state (/var/lib/better-compute, else /var/tmp/better-compute), and the
 * state folder keeps a pointer with a random name: a deleted and newly made state folder never meets the old data.
 */
import { lstatSync, mkdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { SetupError } from '../lib/failure.mjs';
import { runCommand } from '../lib/run-command.mjs';

/** @typedef {{ uid: number, gid: number, name: string }} Account */

/** Whom PostgreSQL runs as: null for ourselves.
 * @returns {Promise<Account | null>} */
export async function databaseAccount() {
  if (process.getuid?.() !== 0) return null;
  const found = (await account('postgres')) ?? (await account('better-compute'));
  if (found !== null) return found;
  const made = await runCommand('useradd', ['--system', '--no-create-home', '--shell', '/usr/sbin/nologin', 'better-compute'], {
    timeoutMs: 10_000,
  });
  const created = await account('better-compute');
  if (created !== null) return created;
  throw new SetupError(
    `PostgreSQL refuses to run as root, and no account for it could be made (useradd: ${made.err.trim() || `exit ${made.code}`})`,
    'create a user named postgres, run as another user than root, or set BETTER_COMPUTE_DATABASE_URL',
  );
}

async function account(name) {
  const [user, group] = await Promise.all(['-u', '-g'].map((flag) => runCommand('id', [flag, name], { timeoutMs: 5_000 })));
  return user.code === 0 && group.code === 0 ? { uid: Number(user.out), gid: Number(group.out), name } : null;
}

/** Whether the account can enter a folder and everything above it. The folder need not exist yet.
 * @param {string} folder @param {Account | null} who */
export function canEnter(folder, who) {
  if (who === null) return true;
  for (let path = folder; ; path = dirname(path)) {
    const stat = statSync(path, { throwIfNoEntry: false });
    if (stat !== undefined && !mayPass(stat, who)) return false;
    if (path === dirname(path)) return true;
  }
}

function mayPass(stat, who) {
  if (stat.uid === who.uid) return (stat.mode & 0o100) !== 0;
  if (stat.gid === who.gid) return (stat.mode & 0o010) !== 0;
  return (stat.mode & 0o001) !== 0;
}

/** A folder the account can enter, made when it is not there.
 * @param {Account} who @returns {string} */
export function openPlace(who) {
  for (const base of ['/var/lib', '/var/tmp']) {
    const place = join(base, 'better-compute');
    if (!canEnter(base, who)) continue;
    try {
      mkdirSync(place, { recursive: true, mode: 0o755 });
    } catch {
      continue;
    }
    // Someone else's folder (or link) of that name in /var/tmp would let them exchange the binaries.
    const found = lstatSync(place);
    if (found.isDirectory() && found.uid === 0 && (found.mode & 0o022) === 0 && canEnter(place, who)) return place;
  }
  throw new SetupError(
    `no folder that ${who.name} can enter was found for the database (tried /var/lib/better-compute and /var/tmp/better-compute)`,
    'move the checkout or BETTER_COMPUTE_HOME to a folder other users can enter, or set BETTER_COMPUTE_DATABASE_URL',
  );
}
