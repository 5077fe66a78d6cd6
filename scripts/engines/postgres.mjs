/**
 * An embedded, real PostgreSQL under the state folder: initialised once, kept by keeper.mjs, on the loopback only.
 *
 * - The password of the application's role is random and lies in <home>/postgres.json (0600); the superuser has
 *   none: over TCP everyone needs a password (scram), and the account the server runs as may connect through the socket.
 * - As root the server runs as its own account (open-place.mjs says where its files lie then, and why).
 * - A half-made data folder is never used: initdb works in a folder that gets its name when everything is done.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { SetupError } from '../lib/failure.mjs';
import { claimPort } from '../lib/free-port.mjs';
import { runCommand } from '../lib/run-command.mjs';
import { endLeftOver, startKept } from './kept-engine.mjs';
import { canEnter, databaseAccount, openPlace } from './open-place.mjs';
import { postgresBinaries } from './postgres-binaries.mjs';
import { acceptsConnections } from './postgres-probe.mjs';

const role = 'better_compute';

/**
 * @param {{ home: string, port?: number, log?: string, setBy?: string, settings?: Record<string, string> }} options
 *   `home`: state folder; `port`: 0 for a free one; `log`: file of the server's log; `settings`: further server settings
 */
export async function startPostgres({
  home,
  port = 0,
  log = join(home, 'logs', 'postgres.log'),
  setBy = 'BETTER_COMPUTE_POSTGRES_PORT',
  settings = {},
}) {
  // The account the server runs as passes through the state folder; what is secret in there has a mode of its own.
  mkdirSync(home, { recursive: true, mode: 0o711 });
  mkdirSync(dirname(log), { recursive: true, mode: 0o700 });
  const account = await databaseAccount();
  const binaries = postgresBinaries(account);
  const known = knownCluster(resolve(home));
  if (known !== null) await clearStalePid(known.data);
  const chosen = await claimPort({ port, who: 'the embedded PostgreSQL', setBy });
  const state = known ?? (await newCluster({ home: resolve(home), account, binaries }));
  const engine = await startKept({
    name: 'PostgreSQL',
    command: join(binaries, 'bin', 'postgres'),
    args: ['-D', state.data, ...serverSettings({ port: chosen, data: state.data, settings })],
    env: engineEnv(binaries),
    stopSignal: 'SIGINT',
    graceMs: 10_000,
    log,
    ...(account === null ? {} : { uid: account.uid, gid: account.gid }),
    isReady: () => acceptsConnections({ port: chosen, user: role, database: role }),
    readyWithinMs: 60_000,
  });
  const url = `postgresql://${role}:${state.password}@127.0.0.1:${chosen}/${role}`;
  return { url, port: chosen, pid: engine.pid, exited: engine.exited, stop: engine.stop };
}

// All it gets: neither our secrets nor the PG… names of whoever started us.
const engineEnv = (binaries) => ({ PATH: process.env.PATH ?? '', LD_LIBRARY_PATH: join(binaries, 'lib'), LC_ALL: 'C.UTF-8' });

function serverSettings({ port, data, settings }) {
  const all = {
    port: String(port),
    listen_addresses: '127.0.0.1',
    // A socket's path has at most 107 bytes; without one the server is reached by TCP alone.
    unix_socket_directories: data.length < 80 ? data : '',
    max_connections: '200',
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...settings,
  };
  return Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

/** null when this state folder has no database yet. @returns {{ data: string, password: string } | null} */
function knownCluster(home) {
  const pointer = join(home, 'postgres.json');
  if (!existsSync(pointer)) return null;
  const state = readPointer(pointer);
  if (existsSync(join(state.data, 'PG_VERSION'))) return state;
  throw new SetupError(`the database of ${home} is gone: ${state.data} holds no data`, `restore it, or begin anew by moving ${home} away`);
}

async function newCluster({ home, account, binaries }) {
  const data = join(dataPlace(home, account), 'data');
  const password = randomBytes(24).toString('base64url');
  await createCluster({ data, account, binaries, password });
  const pointer = join(home, 'postgres.json');
  writeFileSync(`${pointer}.new`, `${JSON.stringify({ data, password })}\n`, { mode: 0o600 });
  renameSync(`${pointer}.new`, pointer);
  return { data, password };
}

function readPointer(pointer) {
  try {
    const { data, password } = JSON.parse(readFileSync(pointer, 'utf8'));
    if (typeof data === 'string' && typeof password === 'string') return { data, password };
  } catch {
    // Told below, in the same words as a pointer with other contents.
  }
  throw new SetupError(
    `${pointer} is not what start wrote there`,
    'restore it from a backup, or begin anew by moving the state folder away',
  );
}

function dataPlace(home, account) {
  const near = join(home, 'postgres');
  const place = canEnter(home, account) ? near : join(openPlace(account), `database-${randomBytes(6).toString('hex')}`);
  mkdirSync(place, { recursive: true, mode: 0o700 });
  chmodSync(place, 0o700);
  if (account !== null) chownSync(place, account.uid, account.gid);
  // Far from the state folder, a person must be able to tell whose it is.
  if (place !== near) writeFileSync(join(place, 'belongs-to'), `${home}\n`);
  return place;
}

async function createCluster({ data, account, binaries, password }) {
  const unfinished = `${data}.new`;
  rmSync(unfinished, { recursive: true, force: true });
  rmSync(data, { recursive: true, force: true });
  const run = {
    env: engineEnv(binaries),
    cwd: '/',
    timeoutMs: 120_000,
    ...(account === null ? {} : { uid: account.uid, gid: account.gid }),
  };
  const made = await runCommand(
    join(binaries, 'bin', 'initdb'),
    ['-D', unfinished, '-U', 'postgres', '--encoding=UTF8', '--locale=C', '--auth-local=peer', '--auth-host=reject', '--no-instructions'],
    run,
  );
  if (made.code !== 0)
    throw new SetupError(
      `PostgreSQL could not be initialised in ${unfinished} (exit code ${made.code})`,
      made.err.trim() || made.out.trim(),
    );
  const statements = [`create role ${role} login createdb password '${password}';`, `create database ${role} owner ${role};`];
  for (const statement of statements) {
    // Single-user mode takes statements on stdin: no port, no password, no client library.
    const done = await runCommand(join(binaries, 'bin', 'postgres'), ['--single', '-j', '-D', unfinished, 'postgres'], {
      ...run,
      input: `${statement}\n\n`,
    });
    if (done.code !== 0 || /ERROR|FATAL/.test(done.err))
      throw new SetupError('the application role could not be made in the new database', done.err.trim());
  }
  writeFileSync(join(unfinished, 'pg_hba.conf'), 'local all all peer\nhost all all 127.0.0.1/32 scram-sha-256\n');
  renameSync(unfinished, data);
}

// Left by a killed run: either the server still lives (ended here; nobody else runs this state folder, see the stack's
// lock), or its pid now belongs to someone else and the file would keep the server from starting.
async function clearStalePid(data) {
  const file = join(data, 'postmaster.pid');
  if (!existsSync(file)) return;
  const pid = Number(readFileSync(file, 'utf8').split('\n')[0]);
  await endLeftOver({ pid, mark: data, signal: 'SIGINT', graceMs: 15_000 });
  rmSync(file, { force: true });
}
