/** Which processes of the control plane live, and which bundle each runs (H-02). */
import { eq } from 'drizzle-orm';
import type { ProcessFact } from '../domain/rotation/gates.ts';
import { type Executor, instantOrNull } from '../drizzle/client.ts';
import { controlProcesses } from '../drizzle/schema/index.ts';

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
  /** Serial of the certificate a gateway presents to daemons; absent for others. */
  readonly servingSerial?: string;
}

const beat = {
  name: 'process-heartbeat',
  text: `insert into control_processes (id, kind, host, pid, version, bundle_digest, bundle_generation, trust_version_seen, serving_serial, started_at, last_seen_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::timestamptz, clock_timestamp()), coalesce($10::timestamptz, clock_timestamp()))
         on conflict (id) do update set bundle_digest = excluded.bundle_digest, bundle_generation = excluded.bundle_generation,
           trust_version_seen = excluded.trust_version_seen, serving_serial = excluded.serving_serial, version = excluded.version,
           last_seen_at = greatest(control_processes.last_seen_at, excluded.last_seen_at)`,
};

/** Says that this process lives, and with what. Every 10 s, and at once when its bundle changes. By the database's clock unless `now` is given. */
export async function recordHeartbeat(db: Executor, process: ProcessHeartbeat, now?: number): Promise<void> {
  await db.query(beat, [
    process.id,
    process.kind,
    process.host,
    process.pid,
    process.version,
    process.bundleDigest,
    process.bundleGeneration,
    process.trustVersionSeen,
    process.servingSerial ?? null,
    instantOrNull(now),
  ]);
}

/** A process that ends in order takes its row away: no gate waits for it. */
export async function removeProcess(db: Executor, id: string): Promise<void> {
  await db.run((orm) => orm.delete(controlProcesses).where(eq(controlProcesses.id, id)));
}

export interface ProcessRow extends ProcessFact {
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  readonly bundleGeneration: number | null;
  readonly servingSerial: string | null;
  readonly startedAt: number;
}

/** Read at every beat of every worker. */
const list = {
  name: 'processes-list',
  text: `select id, kind, host, pid, version, bundle_digest as "bundleDigest", bundle_generation as "bundleGeneration",
           trust_version_seen as "publishedVersionSeen", serving_serial as "servingSerial", started_at as "startedAt", last_seen_at as "lastSeenAt"
         from control_processes order by kind, id`,
};

/** Every process on record; the gate itself decides which of them count as live. */
export const listProcesses = (db: Executor): Promise<ProcessRow[]> => db.query<ProcessRow>(list);
