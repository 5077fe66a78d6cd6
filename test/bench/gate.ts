/** The fleet gate over 100,000 open sessions: one statement, against a bare count of the same rows. */
import { day } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { fleetFacts } from '../../drizzle/queries/sessions.ts';
import { startTestServer } from '../harness/postgres.ts';
import { median } from './database-load.ts';
import type { Figure } from './gateway-load.ts';

export interface GateOptions {
  readonly sessions?: number;
  readonly rounds?: number;
}

const limitMs = 50;
const now = Date.UTC(2026, 2, 1);
const version = 7;

/** Nodes with a session each, one in a hundred behind; and as many sessions that ended, as a fleet leaves them behind. */
async function fill(db: Database, sessions: number): Promise<void> {
  await db.query({ text: `insert into sites (id) values ('site')` });
  await db.query({ text: `insert into nodes (id, site_id, role) select 'node-' || i, 'site', 'node' from generate_series(1, $1::int) i` }, [
    sessions,
  ]);
  const insert = `insert into node_sessions (id, node_id, gateway_id, epoch, role, cert_issuer, cert_serial, peer, boot_id, started_at, last_seen_at,
      ended_at, daemon_version, capabilities, trust_version)
    select gen_random_uuid(), 'node-' || i, 'gw-' || i % 10, 1, 'node', repeat('a', 64), md5(i::text), '192.0.2.1:40000', gen_random_uuid()::text,
      $2, $2, $3, '0.1.0', '{commands,trust,limits,network-policy,snapshots,volumes}', $4::int - (i % 100 = 0)::int from generate_series(1, $1::int) i`;
  await db.query({ text: insert }, [sessions, new Date(now - day), new Date(now - day), version]);
  await db.query({ text: insert }, [sessions, new Date(now), null, version]);
  await db.query({
    text: `insert into node_presence select node_id, id, last_seen_at, trust_version from node_sessions where ended_at is null`,
  });
  await db.query({ text: 'vacuum analyze' });
  // Presence writes of a quarter of an hour, and what they leave behind.
  for (let round = 0; round < 3; round += 1) {
    await db.query({ text: 'update node_presence set last_seen_at = $1' }, [new Date(now + round)]);
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

export async function figure(options: GateOptions = {}): Promise<Figure> {
  const { sessions = 100_000, rounds = 15 } = options;
  const server = await startTestServer({ durable: true });
  const database = await server.createMigrated();
  const db = database.connect({ max: 1, statementTimeoutMs: 120_000 });
  try {
    await fill(db, sessions);
    const ours = () => fleetFacts(db, { version, now: now + 1_000 });
    const bare = () => db.query({ name: 'bare-count', text: 'select count(*) from node_presence' });
    const facts = await ours();
    await bare();
    const times: { ours: number; bare: number }[] = [];
    for (let round = 0; round < rounds; round += 1) times.push({ bare: await timed(bare), ours: await timed(ours) });
    const oursMs = median(times.map((time) => time.ours));
    return {
      figure: 'gate',
      ratio: median(times.map((time) => time.ours / time.bare)),
      measured: `${oursMs.toFixed(1)} ms`,
      goal: `<= ${limitMs} ms`,
      holds: oursMs <= limitMs,
      detail: {
        sessions,
        oursMs: Math.round(oursMs * 10) / 10,
        bareCountMs: Math.round(median(times.map((time) => time.bare)) * 10) / 10,
        connected: facts.connected,
        behind: facts.behind,
      },
    };
  } finally {
    await db.close();
    await database.drop();
    await server.stop();
  }
}
