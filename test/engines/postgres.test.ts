import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { type RunningPostgres, startPostgres } from '../../scripts/engines/postgres.mjs';
import { isAlive } from '../../scripts/lib/lock.mjs';
import { eventually } from '../harness/eventually.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const root = process.getuid?.() === 0;

async function ask(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end();
  }
}

/** A state folder the database's account can pass through. */
function openHome(): string {
  const home = scratchFolder();
  chmodSync(home, 0o711);
  return home;
}

const pointerOf = (home: string): { data: string; password: string } =>
  JSON.parse(readFileSync(join(home, 'postgres.json'), 'utf8')) as { data: string; password: string };

describe('the embedded PostgreSQL', function () {
  this.timeout(120_000);
  const running: RunningPostgres[] = [];
  const outside: string[] = [];
  const start = async (home: string, port = 0): Promise<RunningPostgres> => {
    const server = await startPostgres({ home, port });
    running.push(server);
    return server;
  };
  const stop = async (server: RunningPostgres): Promise<void> => {
    running.splice(running.indexOf(server), 1);
    await server.stop();
  };
  afterEach(async () => {
    await Promise.all(running.splice(0).map((server) => server.stop()));
    for (const folder of outside.splice(0)) rmSync(folder, { recursive: true, force: true });
    removeScratchFolders();
  });

  it('starts anew, keeps what is written, and stops without a trace', async () => {
    const home = openHome();
    const first = await start(home);
    assert.match(first.url, /^postgresql:\/\/better_compute:[\w-]{32}@127\.0\.0\.1:\d+\/better_compute$/);
    assert.deepEqual(
      await ask(
        first.url,
        "select rolsuper, current_setting('server_version_num')::int >= 180000 as current from pg_roles where rolname = current_user",
      ),
      [{ rolsuper: false, current: true }],
    );
    await ask(first.url, 'create table kept as select 7 as value');
    await stop(first);
    assert.equal(isAlive(first.pid), false);
    assert.equal(await first.exited, 0);
    const second = await start(home, first.port);
    assert.equal(second.url, first.url);
    assert.deepEqual(await ask(second.url, 'select value from kept'), [{ value: 7 }]);
  });

  it('lets nobody in without the password, and the superuser not at all over TCP', async () => {
    const home = openHome();
    const { url } = await start(home);
    await assert.rejects(ask(url.replace(/:[\w-]{32}@/, ':wrong@'), 'select 1'), {
      message: 'password authentication failed for user "better_compute"',
    });
    await assert.rejects(ask(url.replace(/\/\/better_compute:[\w-]{32}@/, '//postgres:x@'), 'select 1'), {
      message: 'password authentication failed for user "postgres"',
    });
    assert.equal(statSync(join(home, 'postgres.json')).mode & 0o777, 0o600);
    assert.equal(statSync(dirname(pointerOf(home).data)).mode & 0o777, 0o700);
  });

  it('works for root in a folder that no other user can enter (skipped for other users)', async function () {
    if (!root) this.skip();
    const home = join(scratchFolder(), 'home');
    assert.equal(statSync(dirname(home)).mode & 0o777, 0o700);
    const server = await start(home);
    const { data } = pointerOf(home);
    outside.push(dirname(data));
    assert.ok(!data.startsWith(home), data);
    assert.equal(readFileSync(join(dirname(data), 'belongs-to'), 'utf8'), `${home}\n`);
    assert.deepEqual(await ask(server.url, 'select 1 as one'), [{ one: 1 }]);
    assert.equal(statSync(data).uid === 0, false);
  });

  it('survives its own SIGKILL: the next start ends what is left and recovers', async () => {
    const home = openHome();
    const first = await start(home);
    await ask(first.url, 'create table kept as select 7 as value');
    process.kill(first.pid, 'SIGKILL');
    await first.exited;
    const second = await start(home, first.port);
    assert.deepEqual(await ask(second.url, 'select value from kept'), [{ value: 7 }]);
  });

  it('ends a server whose keeper was killed, and takes its data over (skipped where there is no Linux)', async function () {
    if (process.platform !== 'linux') this.skip();
    const home = openHome();
    const first = await start(home);
    const keeper = Number(readFileSync(`/proc/${first.pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[1]);
    process.kill(keeper, 'SIGKILL');
    await first.exited;
    assert.equal(isAlive(first.pid), true);
    running.splice(0);
    const second = await start(home);
    await eventually(
      'the end of the first server',
      () => !isAlive(first.pid) || readFileSync(`/proc/${first.pid}/stat`, 'utf8').includes(') Z '),
    );
    assert.deepEqual(await ask(second.url, 'select 1 as one'), [{ one: 1 }]);
  });

  it('is not kept from starting by a pid file whose pid now belongs to another program of that account', async () => {
    const home = openHome();
    await stop(await start(home));
    const { data } = pointerOf(home);
    const { uid, gid } = statSync(data);
    const other = spawn('sleep', ['600'], { stdio: 'ignore', cwd: '/', uid, gid });
    try {
      writeFileSync(join(data, 'postmaster.pid'), `${other.pid}\n${data}\n0\n5432\n\n\n`);
      const again = await start(home);
      assert.deepEqual(await ask(again.url, 'select 1 as one'), [{ one: 1 }]);
      assert.equal(other.exitCode, null);
      assert.equal(other.signalCode, null);
    } finally {
      other.kill('SIGKILL');
    }
  });

  it('names who asked when its port is taken', async () => {
    const holder = createServer().listen(0, '127.0.0.1');
    const port = await eventually('a port', () => (holder.address() as { port: number } | null)?.port);
    const home = scratchFolder();
    await assert.rejects(startPostgres({ home, port }), {
      name: 'SetupError',
      message: `port 127.0.0.1:${port} is taken; the embedded PostgreSQL asked for it (set by BETTER_COMPUTE_POSTGRES_PORT)`,
      hint: 'choose another port, or stop the process that holds it',
    });
    assert.equal(existsSync(join(home, 'postgres.json')), false);
    await new Promise((resolve) => holder.close(resolve));
  });

  it('says so when its data is gone, instead of beginning anew over it', async () => {
    const home = scratchFolder();
    writeFileSync(join(home, 'postgres.json'), JSON.stringify({ data: join(home, 'nowhere'), password: 'x' }));
    await assert.rejects(startPostgres({ home }), {
      name: 'SetupError',
      message: `the database of ${home} is gone: ${join(home, 'nowhere')} holds no data`,
    });
    writeFileSync(join(home, 'postgres.json'), '{');
    await assert.rejects(startPostgres({ home }), {
      name: 'SetupError',
      message: `${join(home, 'postgres.json')} is not what start wrote there`,
    });
  });

  it('shows the last lines of its log when it cannot start', async () => {
    const home = openHome();
    await stop(await start(home));
    const settings = { max_connections: 'none' };
    await assert.rejects(startPostgres({ home, settings }), (error: Error & { hint: string }) => {
      assert.match(error.message, /^PostgreSQL ended while starting \(exit code 1\)$/);
      assert.match(error.hint, /invalid value for parameter "max_connections": "none"/);
      return true;
    });
  });

  it('never uses a data folder that was half made', async () => {
    const home = openHome();
    mkdirSync(join(home, 'postgres', 'data.new'), { recursive: true });
    writeFileSync(join(home, 'postgres', 'data.new', 'PG_VERSION'), '18\n');
    assert.deepEqual(await ask((await start(home)).url, 'select 1 as one'), [{ one: 1 }]);
  });
});
