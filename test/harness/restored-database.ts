/** A copy of the stack's database, and the stack put back onto it: what an operator does with a backup, in two statements. */
import pg from 'pg';

export interface DatabaseCopy {
  /** Puts the copy in the place of the database. Whoever is connected is cut off and connects again. */
  restore(): Promise<void>;
}

/** Both need a moment in which nobody is connected. */
export async function copyDatabase(url: string): Promise<DatabaseCopy> {
  const name = new URL(url).pathname.slice(1);
  const copy = `${name}_before`;
  await alone(url, name, (query) => query(`create database ${copy} template ${name}`));
  return {
    restore: () =>
      alone(url, name, async (query) => {
        await query(`drop database ${name}`);
        await query(`alter database ${copy} rename to ${name}`);
      }),
  };
}

type Query = (text: string) => Promise<unknown>;

async function alone(url: string, name: string, work: (query: Query) => Promise<unknown>): Promise<void> {
  const beside = new URL(url);
  beside.pathname = '/postgres';
  const client = new pg.Client({ connectionString: beside.href });
  await client.connect();
  const query: Query = (text) => client.query(text);
  try {
    await query(`alter database ${name} allow_connections false`);
    await query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`);
    // A backend takes a moment to end; the statement below refuses while one is there.
    for (let attempt = 0; attempt < 100; attempt++) {
      const { rows } = await client.query<{ count: string }>('select count(*) from pg_stat_activity where datname = $1', [name]);
      if (rows[0]?.count === '0') break;
      await query('select pg_sleep(0.05)');
    }
    await work(query);
    await query(`alter database ${name} allow_connections true`);
  } finally {
    await client.end();
  }
}
