/** Says every few seconds that this process lives and which bundle it runs (H-02), and at once when that changes. */
import { hostname } from 'node:os';
import { second } from '../domain/time.ts';
import type { Database } from '../drizzle/client.ts';
import type { ServiceLog } from '../services/log.ts';
import { type ProcessKind, recordHeartbeat, removeProcess } from '../services/processes.ts';

export interface ProcessHeartbeatOptions {
  readonly db: Database;
  readonly log: ServiceLog;
  readonly now: () => number;
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
  const { db, log, now, kind, processId, bundle, trustVersionSeen } = options;
  const beat = async (): Promise<void> => {
    const running = bundle();
    await recordHeartbeat(
      db,
      {
        id: processId,
        kind,
        host: hostname(),
        pid: process.pid,
        version,
        bundleDigest: running?.digest ?? null,
        bundleGeneration: running?.generation ?? null,
        trustVersionSeen: (await trustVersionSeen?.()) ?? null,
      },
      now(),
    );
  };
  const report = (error: unknown): void => log.warn({ err: error }, 'the heartbeat was not written; trying again');
  await beat();
  const timer = setInterval(() => void beat().catch(report), everyMs);
  return {
    beat: () => beat().catch(report),
    async stop() {
      clearInterval(timer);
      await removeProcess(db, processId).catch(report);
    },
  };
}
