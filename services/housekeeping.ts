/**
 * What is finished leaves in batches (gateway.md, rule 10); nothing that a gate, a retry or the trail still reads. Worker
 * certificates stay: they say which roots ever signed.
 */
import { day, hour } from '../domain/time.ts';
import { type Database, instant } from '../drizzle/client.ts';

/** How long finished rows stay. Commands outlive every retry of the activity that made them. */
export const keptMs = Object.freeze({
  commands: 30 * day,
  sessions: 30 * day,
  processes: day,
  reservations: hour,
  replays: 0,
  certificates: 30 * day,
});

type Kept = keyof typeof keptMs;

const prune: Readonly<Record<Kept, string>> = Object.freeze({
  commands: `with old as (select id from node_commands where state >= 2 and finished_at < $1
                          and not exists (select from command_waits w where w.command_id = id) limit $2 for update skip locked),
                  results as (delete from node_results r using old where r.command_id = old.id)
             delete from node_commands c using old where c.id = old.id returning 1`,
  sessions: `delete from node_sessions where id in (select id from node_sessions where ended_at < $1 limit $2) returning 1`,
  processes: `delete from control_processes where id in (select id from control_processes where last_seen_at < $1 limit $2) returning 1`,
  reservations: `delete from node_certs where (issuer, serial) in
                   (select issuer, serial from node_certs where cert_der is null and reserved_at < $1 limit $2) returning 1`,
  replays: `delete from renew_replays where statement_sha256 in (select statement_sha256 from renew_replays where expires_at < $1 limit $2) returning 1`,
  certificates: `delete from node_certs where (issuer, serial) in (select issuer, serial from node_certs where not_after < $1 limit $2) returning 1`,
});

/** @returns how many rows left, by table; call again while one is `batch` */
export async function pruneFinished(
  db: Database,
  input: { readonly now: number; readonly batch?: number },
): Promise<Readonly<Record<Kept, number>>> {
  const counts = {} as Record<Kept, number>;
  for (const [table, text] of Object.entries(prune) as [Kept, string][]) {
    const rows = await db.query({ name: `prune-${table}`, text }, [instant(input.now - keptMs[table]), input.batch ?? 1_000]);
    counts[table] = rows.length;
  }
  return counts;
}
