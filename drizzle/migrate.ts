/**
 * Brings a database to this version: migrations/core/*.sql, then migrations/quorum/*.sql, each in the order of its number,
 * each in one transaction with its row in `schema_migrations`. An advisory lock lets many processes start at once.
 *
 * A migration that ran is never changed: its checksum is compared at every start. A database that knows migrations this
 * version does not is newer; this version refuses it instead of writing into tables it does not understand.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type pg from 'pg';
import { ControlError } from '../domain/errors.ts';
import { translateDatabaseError } from './errors.ts';

export interface Migration {
  /** `core/0001_nodes`. */
  readonly name: string;
  readonly sql: string;
  /** Lower-case hex of SHA-256 over the text. */
  readonly checksum: string;
}

const areas = ['core', 'quorum'] as const;
const here = new URL('./migrations/', import.meta.url);
/** Any number of our own; held while migrating. */
const lockKey = 7_231_406_112;

/** Every migration of this version, in the order in which they run. */
export async function readMigrations(root: URL = here): Promise<Migration[]> {
  const found: Migration[] = [];
  for (const area of areas) {
    const folder = new URL(`${area}/`, root);
    const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort();
    for (const file of names) {
      const sql = await readFile(new URL(file, folder), 'utf8');
      found.push({ name: `${area}/${file.slice(0, -'.sql'.length)}`, sql, checksum: createHash('sha256').update(sql).digest('hex') });
    }
  }
  return found;
}

interface Applied {
  readonly name: string;
  readonly checksum: string;
}

/** Which of `known` are missing in a database that holds `applied`; refuses a newer or a changed history. Pure. */
export function pendingMigrations(known: readonly Migration[], applied: readonly Applied[]): Migration[] {
  const byName = new Map(known.map((migration) => [migration.name, migration]));
  const newer = applied.filter((row) => !byName.has(row.name)).map((row) => row.name);
  if (newer.length > 0) {
    throw new ControlError('INVALID_STATE', `the database was migrated by a newer version (${newer.join(', ')})`, {
      details: { reason: 'database-newer', migrations: newer },
    });
  }
  const changed = applied.filter((row) => byName.get(row.name)?.checksum !== row.checksum).map((row) => row.name);
  if (changed.length > 0) {
    throw new ControlError('INVALID_STATE', `migrations were changed after they ran (${changed.join(', ')})`, {
      details: { reason: 'migration-changed', migrations: changed },
    });
  }
  const done = new Set(applied.map((row) => row.name));
  return known.filter((migration) => !done.has(migration.name));
}

/** @returns the names of the migrations that ran now */
export async function migrate(pool: pg.Pool, options: { readonly root?: URL } = {}): Promise<string[]> {
  const known = await readMigrations(options.root);
  let client: pg.PoolClient | undefined;
  try {
    client = await pool.connect();
    await client.query('select pg_advisory_lock($1)', [lockKey]);
    return await apply(client, known);
  } catch (error) {
    throw translateDatabaseError(error);
  } finally {
    await client?.query('select pg_advisory_unlock($1)', [lockKey]).catch(() => undefined);
    client?.release();
  }
}

async function apply(client: pg.PoolClient, known: readonly Migration[]): Promise<string[]> {
  await client.query(`create table if not exists schema_migrations (
    name text primary key, checksum text not null, applied_at timestamptz not null default now())`);
  const { rows } = await client.query<Applied>('select name, checksum from schema_migrations order by name');
  const pending = pendingMigrations(known, rows);
  for (const migration of pending) {
    await client.query('begin');
    try {
      await client.query('set local statement_timeout = 0');
      await client.query(migration.sql);
      await client.query('insert into schema_migrations (name, checksum) values ($1, $2)', [migration.name, migration.checksum]);
      await client.query('commit');
    } catch (cause) {
      await client.query('rollback');
      throw new ControlError('INTERNAL', `migration ${migration.name} failed`, {
        cause,
        details: { reason: 'migration-failed', migration: migration.name },
      });
    }
  }
  return pending.map((migration) => migration.name);
}
