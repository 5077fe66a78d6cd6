/** Attempts of this process that wait a few seconds for the end of their command before they let go of the worker. */
export interface LocalEnds {
  nextEnd(commandId: string, withinMs: number): Promise<void>;
  /** @returns true when an attempt was waiting: it answers itself */
  wake(commandId: string): boolean;
}

export function createLocalEnds(): LocalEnds {
  const waiting = new Map<string, Set<() => void>>();
  return {
    nextEnd: (commandId, withinMs) =>
      new Promise((resolve) => {
        const waiters = waiting.get(commandId) ?? new Set();
        const done = (): void => {
          clearTimeout(timer);
          waiters.delete(done);
          if (waiters.size === 0) waiting.delete(commandId);
          resolve();
        };
        const timer = setTimeout(done, withinMs);
        waiters.add(done);
        waiting.set(commandId, waiters);
      }),
    wake(commandId) {
      const waiters = waiting.get(commandId);
      if (waiters === undefined) return false;
      for (const done of waiters) done();
      return true;
    },
  };
}
