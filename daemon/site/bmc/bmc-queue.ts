/**
 * One operation at a time on each controller, in the order of arrival, with a pause between two (M14): small controllers fall silent
 * under a burst. The executor's lanes keep a machine's commands apart already; this also holds for what reaches the same controller
 * under another spelling of its address.
 */
export interface BmcQueue {
  /** @param key parseBmcAddress(…).key */
  run<T>(key: string, operation: () => Promise<T>): Promise<T>;
}

export interface QueuePorts {
  readonly now: () => number;
  /** Not abortable: a pause is short. */
  readonly pause: (ms: number) => Promise<void>;
  readonly spacingMs?: number;
}

export const operationSpacingMs = 250;

export function createBmcQueue({ now, pause, spacingMs = operationSpacingMs }: QueuePorts): BmcQueue {
  const tails = new Map<string, Promise<unknown>>();
  const endedAtMs = new Map<string, number>();
  return {
    async run(key, operation) {
      const before = tails.get(key) ?? Promise.resolve();
      const turn = before.then(async () => {
        const waitMs = (endedAtMs.get(key) ?? Number.NEGATIVE_INFINITY) + spacingMs - now();
        if (waitMs > 0) await pause(waitMs);
        try {
          return await operation();
        } finally {
          endedAtMs.set(key, now());
        }
      });
      const tail = turn.catch(() => undefined);
      tails.set(key, tail);
      try {
        return await turn;
      } finally {
        // The last one out forgets the controller, but for when it was last asked.
        if (tails.get(key) === tail) tails.delete(key);
      }
    },
  };
}
