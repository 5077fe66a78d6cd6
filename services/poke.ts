/**
 * Wakes gateways off the write path (gateway.md, rule 6): node ids are collected and sent in one notification at most every
 * few milliseconds. A lost one costs a gateway one poll, so nothing here fails its caller.
 */
import type { Executor } from '../drizzle/client.ts';
import type { ServiceLog } from './log.ts';

export const gatewayChannel = 'bc_gateway';
/** Nodes whose desired state changed; the same payloads. */
export const specChannel = 'bc_spec';
/** PostgreSQL refuses payloads of 8,000 bytes and more (B68). */
export const maxPayloadBytes = 7_900;
/** Instead of a list that would not fit: read everything. */
export const sweepWord = 'sweep';

export interface Poker {
  readonly poke: (nodeIds: readonly string[]) => void;
  /** Sends what is collected and stops. */
  close(): Promise<void>;
}

export interface PokerOptions {
  readonly db: Executor;
  readonly log: ServiceLog;
  /** Default 10. */
  readonly intervalMs?: number;
}

/** The payload for these nodes: a JSON list, or the word that they are too many. */
export function pokePayload(nodeIds: ReadonlySet<string>): string {
  const text = JSON.stringify([...nodeIds]);
  return Buffer.byteLength(text) <= maxPayloadBytes ? text : sweepWord;
}

export function createPoker({ db, log, intervalMs = 10 }: PokerOptions): Poker {
  let waiting = new Set<string>();
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> = Promise.resolve();

  const send = async (): Promise<void> => {
    timer = undefined;
    if (waiting.size === 0) return;
    const payload = pokePayload(waiting);
    waiting = new Set();
    try {
      await db.query({ name: 'poke', text: 'select pg_notify($1, $2)' }, [gatewayChannel, payload]);
    } catch (error) {
      log.warn({ err: error }, 'a notification to the gateways was lost; they read the log every second anyway');
    }
  };
  const schedule = (): void => {
    timer ??= setTimeout(() => {
      sending = send();
    }, intervalMs).unref();
  };

  return {
    poke(nodeIds) {
      for (const id of nodeIds) waiting.add(id);
      if (waiting.size > 0) schedule();
    },
    async close() {
      clearTimeout(timer);
      await sending;
      await send();
    },
  };
}

/** Tells the gateways that the desired state of these nodes changed. @throws when the database does not answer */
export async function announceSpecs(db: Executor, nodeIds: readonly string[]): Promise<void> {
  await db.query({ name: 'announce-specs', text: 'select pg_notify($1, $2)' }, [specChannel, pokePayload(new Set(nodeIds))]);
}
