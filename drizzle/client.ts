/**
 * The connection to PostgreSQL: one pool a process, statement timeouts on every connection, errors translated here.
 *
 * Hot statements are written as SQL with a name (pg prepares them once a connection) and live in drizzle/queries; the rest
 * may use drizzle's typed builder through `run`. Raw rows carry instants as Unix milliseconds (infinity as ±Infinity) and
 * bigint columns as numbers, refused above 2^53.
 */
import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import pg from 'pg';
import { ControlError } from '../domain/errors.ts';
import { translateDatabaseError } from './errors.ts';

export interface Statement {
  /** Prepared once a connection under this name; one name, one text. */
  readonly name?: string;
  readonly text: string;
}

/** Where a statement runs: the pool, or one transaction. */
export interface Executor {
  /** The rows of one statement. */
  query<Row extends object = Record<string, unknown>>(statement: Statement, values?: readonly unknown[]): Promise<Row[]>;
  /** The typed builder, with the same error translation. */
  run<T>(work: (orm: NodePgDatabase) => Promise<T>): Promise<T>;
}

export interface Database extends Executor {
  readonly db: NodePgDatabase;
  readonly pool: pg.Pool;
  /** Runs `work` in one READ COMMITTED transaction; what it throws rolls back. */
  transaction<T>(work: (tx: Executor) => Promise<T>): Promise<T>;
  /** A connection of one's own, outside the pool: for LISTEN. The caller ends it. */
  connect(): Promise<pg.Client>;
  close(): Promise<void>;
}

export interface DatabaseOptions {
  /** Connections at most; default 10. */
  readonly max?: number;
  readonly applicationName: string;
  /** Default 10 s. */
  readonly statementTimeoutMs?: number;
  /** How long a caller waits for a connection; default 5 s. */
  readonly connectTimeoutMs?: number;
}

const { INT8, TIMESTAMPTZ } = pg.types.builtins;

function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new ControlError('INTERNAL', `a bigint of the database is beyond 2^53: ${text}`);
  return value;
}

const parseInstantText = pg.types.getTypeParser(TIMESTAMPTZ);

const ownParsers: Readonly<Record<number, (text: string) => unknown>> = {
  [INT8]: parseInt8,
  [TIMESTAMPTZ]: (text) => Number(parseInstantText(text)),
};

type GetTypeParser = pg.CustomTypesConfig['getTypeParser'];

const typeParsers: pg.CustomTypesConfig = {
  getTypeParser: ((oid: Parameters<GetTypeParser>[0], format?: 'text') =>
    ownParsers[oid] ?? pg.types.getTypeParser(oid, format)) as GetTypeParser,
};

/** Unix milliseconds → what pg sends as timestamptz. */
export const instant = (ms: number): Date => new Date(ms);
export const instantOrNull = (ms: number | null | undefined): Date | null => (ms === null || ms === undefined ? null : new Date(ms));

type Queries = Pick<pg.Pool, 'query'>;

/** @param orm made where it is used: most transactions are written as SQL and need no builder */
function executor(client: Queries, orm: () => NodePgDatabase): Executor {
  return {
    async query<Row extends object>(statement: Statement, values: readonly unknown[] = []) {
      try {
        const result = await client.query<Row & pg.QueryResultRow>({ ...statement, values: values as unknown[], types: typeParsers });
        return result.rows;
      } catch (error) {
        throw translateDatabaseError(error);
      }
    },
    async run(work) {
      try {
        return await work(orm());
      } catch (error) {
        throw translateDatabaseError(error);
      }
    },
  };
}

async function inTransaction<T>(pool: pg.Pool, work: (tx: Executor) => Promise<T>): Promise<T> {
  let client: pg.PoolClient;
  try {
    client = await pool.connect();
  } catch (error) {
    throw translateDatabaseError(error);
  }
  // A connection that breaks between two statements raises an event that nobody else listens to.
  let broken: Error | undefined;
  const onError = (error: Error): void => {
    broken = error;
  };
  client.on('error', onError);
  try {
    await client.query('begin');
    const result = await work(executor(client, () => drizzle(client)));
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch((failure: Error) => {
      broken ??= failure;
    });
    throw translateDatabaseError(error);
  } finally {
    client.off('error', onError);
    client.release(broken);
  }
}

/** Opens no connection yet: the first statement does. */
export function createDatabase(url: string, options: DatabaseOptions): Database {
  const { max = 10, applicationName, statementTimeoutMs = 10_000, connectTimeoutMs = 5_000 } = options;
  const config: pg.ClientConfig = {
    connectionString: url,
    application_name: applicationName,
    statement_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: 30_000,
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    // A plan that was kept from when a table had one page scans it for ever after; planning costs less than one such scan.
    options: '-c plan_cache_mode=force_custom_plan',
  };
  // Above the statement timeout: it speaks only when the server itself is silent.
  const pool = new pg.Pool({ ...config, max, query_timeout: statementTimeoutMs + 5_000, idleTimeoutMillis: 30_000 });
  // An idle connection that the server closed is replaced at the next use; unheard, the event would end the process.
  pool.on('error', () => undefined);
  const db = drizzle(pool);
  return {
    ...executor(pool, () => db),
    db,
    pool,
    transaction: (work) => inTransaction(pool, work),
    async connect() {
      const client = new pg.Client(config);
      try {
        await client.connect();
      } catch (error) {
        throw translateDatabaseError(error);
      }
      return client;
    },
    close: () => pool.end(),
  };
}
