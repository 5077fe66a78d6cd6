/** What the database says to a worker by itself, on one connection, brought to who asked for it (drizzle/listener.ts). */
import type { Database } from '../drizzle/client.ts';
import { DatabaseListener } from '../drizzle/listener.ts';
import type { ServiceLog } from '../services/log.ts';

export interface Hearing {
  /** What is said arrives. Until then, and whenever it does not, the clock has to do. */
  readonly isHeard: () => boolean;
  /** Before the start. */
  on(channel: string, hear: Heard): void;
  start(): void;
  close(): Promise<void>;
}

interface Heard {
  onWord(payload: string): void;
  /** Words may have been missed. */
  onGap(): void;
}

export interface HearingOptions {
  readonly db: Pick<Database, 'connect'>;
  /** Of the process. */
  readonly name: string;
  readonly log: ServiceLog;
}

export function createHearing({ db, name, log }: HearingOptions): Hearing {
  const all = new Map<string, Heard>();
  let listener: DatabaseListener | undefined;
  const gap = (): void => {
    for (const { onGap } of all.values()) onGap();
  };
  return {
    isHeard: () => listener?.isHeard ?? false,
    on: (channel, hear) => void all.set(channel, hear),
    start() {
      listener = new DatabaseListener({
        name,
        channels: [...all.keys()],
        connect: () => db.connect(),
        onNotification: (channel, payload) => all.get(channel)?.onWord(payload ?? ''),
        onListening: gap,
        onLost: (error) => {
          log.warn({ err: error }, 'the database says nothing to this worker, which looks by the clock until it does');
          gap();
        },
      });
      listener.start();
    },
    close: async () => listener?.close(),
  };
}
