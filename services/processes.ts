/** Which processes of the control plane live, and which bundle each runs (H-02). */
import type { ProcessFact } from '../domain/rotation/gates.ts';
import { type Executor, instant } from '../drizzle/client.ts';

export type ProcessKind = 'api' | 'gateway' | 'worker-control' | 'worker-signing';

export interface ProcessHeartbeat {
  /** Unique per process start, readable: `api@host:4711`. */
  readonly id: string;
  readonly kind: ProcessKind;
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  /** null for a process that does not hold the bundle. */
  readonly bundleDigest: string | null;
  readonly bundleGeneration: number | null;
  /** The published version a gateway hands out; null for others. */
  readonly trustVersionSeen: number | null;
}

const beat = {
  name: 'process-heartbeat',
  text: `insert into control_processes (id, kind, host, pid, version, bundle_digest, bundle_generation, trust_version_seen, started_at, last_seen_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
         on conflict (id) do update set bundle_digest = excluded.bundle_digest, bundle_generation = excluded.bundle_generation,
           trust_version_seen = excluded.trust_version_seen, version = excluded.version,
           last_seen_at = greatest(control_processes.last_seen_at, excluded.last_seen_at)`,
};

/** Says that this process lives, and with what. Every 10 s, and at once when its bundle changes. */
export async function recordHeartbeat(db: Executor, process: ProcessHeartbeat, now: number): Promise<void> {
  await db.query(beat, [
    process.id,
    process.kind,
    process.host,
    process.pid,
    process.version,
    process.bundleDigest,
    process.bundleGeneration,
    process.trustVersionSeen,
    instant(now),
  ]);
}

const leave = { name: 'process-leave', text: 'delete from control_processes where id = $1' };

/** A process that ends in order takes its row away: no gate waits for it. */
export async function removeProcess(db: Executor, id: string): Promise<void> {
  await db.query(leave, [id]);
}

const list = {
  name: 'process-list',
  text: `select id, kind, host, pid, version, bundle_digest as "bundleDigest", bundle_generation as "bundleGeneration",
           trust_version_seen as "publishedVersionSeen", started_at as "startedAt", last_seen_at as "lastSeenAt"
         from control_processes order by kind, id`,
};

export interface ProcessRow extends ProcessFact {
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  readonly bundleGeneration: number | null;
  readonly startedAt: number;
}

/** Every process on record; the gate itself decides which of them count as live. */
export const listProcesses = (db: Executor): Promise<ProcessRow[]> => db.query<ProcessRow>(list);
