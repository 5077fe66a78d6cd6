/**
 * A real PostgreSQL for tests: the server of BETTER_COMPUTE_TEST_DATABASE_URL (a role that may create databases), else the embedded
 * one, started once a process. One template database is migrated once; every test file works on a copy of its own, and a
 * connection that is still open when the file ends fails it.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { createDatabase, type Database, type DatabaseOptions } from '../../drizzle/client.ts';
import { migrate } from '../../drizzle/migrate.ts';
import { startPostgres } from '../../scripts/engines/postgres.mjs';

export interface TestServer {
  /** An empty database; nothing in it. */
  createEmpty(): Promise<TestDatabase>;
  /** A migrated database, with nothing but what the migrations put in. */
  createMigrated(): Promise<TestDatabase>;
  stop(): Promise<void>;
}

export interface TestDatabase {
  readonly url: string;
  readonly name: string;
  connect(options?: Partial<DatabaseOptions>): Database;
  /** @throws AssertionError when connections are still open */
  drop(): Promise<void>;
}

export interface TestServerOptions {
  /** Commits reach the disk, as in production: for measurements. Tests do without. */
  readonly durable?: boolean;
}

const settingsOf = ({ durable = false }: TestServerOptions): Record<string, string> =>
  durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' };

async function startServer(options: TestServerOptions): Promise<{ url: string; stop(): Promise<void> }> {
  const given = process.env['BETTER_COMPUTE_TEST_DATABASE_URL'];
  if (given !== undefined && given !== '') return { url: given, stop: async () => undefined };
  const home = mkdtempSync(join(tmpdir(), 'bc-postgres-'));
  // Else, as root, the data would go to the open place for closed folders, and stay there.
  chmodSync(home, 0o711);
  const engine = await startPostgres({ home, settings: settingsOf(options) });
  return {
    url: engine.url,
    async stop() {
      await engine.stop();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

export async function startTestServer(options: TestServerOptions = {}): Promise<TestServer> {
  const engine = await startServer(options);
  const admin = new pg.Client({ connectionString: engine.url, application_name: 'test-admin' });
  await admin.connect();
  const run = randomBytes(4).toString('hex');
  const template = `bc_test_${run}_template`;
  let copies = 0;
  let migrated: Promise<void> | undefined;

  const urlOf = (name: string): string => {
    const url = new URL(engine.url);
    url.pathname = `/${name}`;
    return url.href;
  };
  const makeTemplate = async (): Promise<void> => {
    await admin.query(`create database ${template}`);
    const db = createDatabase(urlOf(template), { applicationName: 'test-template', max: 1 });
    await migrate(db.pool);
    await db.close();
    await settle(admin, template);
  };
  const create = async (from: string): Promise<TestDatabase> => {
    copies += 1;
    const name = `bc_test_${run}_${copies}`;
    await admin.query(`create database ${name} template ${from}`);
    return {
      name,
      url: urlOf(name),
      connect: (given) => createDatabase(urlOf(name), { applicationName: 'test', ...given }),
      async drop() {
        const open = await settle(admin, name);
        await admin.query(`drop database ${name} with (force)`);
        assert.deepEqual(open, [], `connections to ${name} were left open`);
      },
    };
  };

  return {
    createEmpty: () => create('template1'),
    async createMigrated() {
      migrated ??= makeTemplate();
      await migrated;
      return create(template);
    },
    async stop() {
      if (migrated !== undefined) await admin.query(`drop database if exists ${template} with (force)`);
      await admin.end();
      await engine.stop();
    },
  };
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits a little for backends to notice that their clients left. @returns who is still there */
async function settle(admin: pg.Client, name: string): Promise<string[]> {
  for (let attempt = 0; ; attempt++) {
    const { rows } = await admin.query<{ application_name: string; state: string }>(
      `select application_name, state from pg_stat_activity where datname = $1 and backend_type = 'client backend'`,
      [name],
    );
    if (rows.length === 0 || attempt === 40) return rows.map((row) => `${row.application_name} (${row.state})`);
    await pause(25);
  }
}

let shared: Promise<TestServer> | undefined;

/** The server of this process; mocha stops it after its last test. */
export function sharedServer(): Promise<TestServer> {
  shared ??= startTestServer();
  return shared;
}

if (typeof after === 'function') {
  after(async function stopServer() {
    this.timeout(30_000);
    await (await shared)?.stop();
    shared = undefined;
  });
}

export interface UsedDatabase {
  readonly db: Database;
  readonly url: string;
}

/**
 * Inside a `describe`: a migrated database for its tests, gone afterwards. After each test no connection may be busy.
 *
 * @returns what the tests use; empty before the first of them runs
 */
export function useDatabase(options: Partial<DatabaseOptions> = {}): UsedDatabase {
  const used = {} as { db: Database; url: string };
  let made: TestDatabase;
  before(async function start() {
    this.timeout(60_000);
    made = await (await sharedServer()).createMigrated();
    used.db = made.connect(options);
    used.url = made.url;
  });
  afterEach(async () => {
    const { pool } = used.db;
    // Work that was let go of may be about to end.
    for (let attempt = 0; attempt < 40 && pool.idleCount !== pool.totalCount; attempt++) await pause(25);
    assert.equal(pool.idleCount, pool.totalCount, 'a connection was not given back to its pool');
  });
  after(async () => {
    await used.db.close();
    await made.drop();
  });
  return used;
}
