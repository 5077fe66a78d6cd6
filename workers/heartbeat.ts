/** Says every few seconds that this process lives and which bundle it runs (H-02), and at once when that changes. */
import { hostname } from 'node:os';
import { second } from '../domain/time.ts';
import type { Database } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import type { ServiceLog } from '../services/log.ts';
import { listProcesses, type ProcessKind, type ProcessRow, recordHeartbeat, removeProcess } from '../services/processes.ts';

export interface ProcessHeartbeatOptions {
  readonly db: Database;
  readonly log: ServiceLog;
  readonly kind: ProcessKind;
  readonly processId: string;
  /** null for a process that holds no bundle. */
  readonly bundle: () => { readonly digest: string; readonly generation: number } | null;
  /** For a process without the bundle: the published version it has seen. */
  readonly trustVersionSeen?: () => Promise<number | null>;
}

export interface Heartbeat {
  /** Now, not at the next turn. */
  beat(): Promise<void>;
  stop(): Promise<void>;
}

const everyMs = 2 * second;
const version = '0.1.0';

export const newProcessId = (kind: ProcessKind): string => `${kind}@${hostname()}:${process.pid}`;

/** The first beat is written before it returns: a gate that runs next already waits for this process. */
export async function startHeartbeat(options: ProcessHeartbeatOptions): Promise<Heartbeat> {
  const { db, log, kind, processId, bundle, trustVersionSeen } = options;
  const beat = async (): Promise<void> => {
    const running = bundle();
    await recordHeartbeat(db, {
      id: processId,
      kind,
      host: hostname(),
      pid: process.pid,
      version,
      bundleDigest: running?.digest ?? null,
      bundleGeneration: running?.generation ?? null,
      trustVersionSeen: (await trustVersionSeen?.()) ?? null,
    });
  };
  const beatAndTidy = async (): Promise<void> => {
    await beat();
    const others = (await listProcesses(db)).filter((row) => row.kind === kind && isAnotherOfThisHost(row));
    if (others.length === 0) return;
    const now = await databaseNow(db);
    for (const row of others) if (hasDied(row, now)) await removeProcess(db, row.id);
  };
  const report = (error: unknown): void => log.warn({ err: error }, 'the heartbeat was not written; trying again');
  await beat();
  const timer = setInterval(() => void beatAndTidy().catch(report), everyMs);
  return {
    beat: () => beat().catch(report),
    async stop() {
      clearInterval(timer);
      await removeProcess(db, processId).catch(report);
    },
  };
}

const isAnotherOfThisHost = (row: ProcessRow): boolean => row.host === hostname() && row.pid !== process.pid;

/** Several beats of a process that lives, under whatever process table it counts its ids. */
const silentForMs = 4 * everyMs;

/**
 * One that was killed on this host left its row behind, and a gate would wait for it half a minute. It is taken away by the
 * next of its kind that runs here.
 */
function hasDied(row: ProcessRow, now: number): boolean {
  if (now - row.lastSeenAt < silentForMs) return false;
  try {
    process.kill(row.pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}
