/** What the database measurements share: many callers side by side for a while, and figures over rounds that take turns. */

import { productionTimes } from '../../domain/rotation/gates.ts';
import { day } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { createBundle } from '../../pki/bundle/index.ts';
import { createWorkerKeyring, type WorkerKeyProvider } from '../../services/worker-keys.ts';
import { startTestServer } from '../harness/postgres.ts';

export const trustDomain = 'bench.example';

export const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;

/** A migrated database with nodes `node-0` …, whose commits reach the disk; gone when the work is done. */
export async function withFleet<T>(options: { nodes: number; connections: number }, work: (db: Database) => Promise<T>): Promise<T> {
  const server = await startTestServer({ durable: true });
  const database = await server.createMigrated();
  const db = database.connect({ max: options.connections, statementTimeoutMs: 120_000 });
  try {
    await db.query({ text: `insert into sites (id) values ('site')` });
    await db.query(
      { text: `insert into nodes (id, site_id, role) select 'node-' || i, 'site', 'node' from generate_series(0, $1::int - 1) i` },
      [options.nodes],
    );
    await db.query({ text: 'insert into node_queue (node_id) select id from nodes' });
    return await work(db);
  } finally {
    await db.close();
    await database.drop();
    await server.stop();
  }
}

export async function benchWorker(db: Database): Promise<WorkerKeyProvider> {
  const bundle = await createBundle({ trustDomain, now: Date.now() - day });
  return createWorkerKeyring({ db, processId: 'bench', bundle: () => bundle, times: productionTimes, now: Date.now });
}

/** Calls per second of `callers` that each call again as soon as they are answered. */
export async function perSecond(options: { callers: number; durationMs: number }, call: () => Promise<number>): Promise<number> {
  const startedAt = performance.now();
  const until = startedAt + options.durationMs;
  let done = 0;
  await Promise.all(
    Array.from({ length: options.callers }, async () => {
      while (performance.now() < until) {
        const count = await call();
        done += count;
      }
    }),
  );
  return (done / (performance.now() - startedAt)) * 1_000;
}

export interface Turns {
  readonly ours: number;
  readonly bare: number;
  /** Ours by bare, round by round. */
  readonly ratio: number;
}

/** Bare, ours, ours, bare, …: a machine that is busy for a while is busy for both. */
export async function inTurns(rounds: number, measure: { ours: () => Promise<number>; bare: () => Promise<number> }): Promise<Turns> {
  const results: { ours: number; bare: number }[] = [];
  for (let round = 0; round < rounds; round += 1) {
    if (round % 2 === 0) {
      const bare = await measure.bare();
      results.push({ bare, ours: await measure.ours() });
    } else {
      const ours = await measure.ours();
      results.push({ ours, bare: await measure.bare() });
    }
  }
  return {
    ours: median(results.map((result) => result.ours)),
    bare: median(results.map((result) => result.bare)),
    ratio: median(results.map((result) => result.ours / result.bare)),
  };
}
