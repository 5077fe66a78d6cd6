/** At most so many at a time, in order; what does not fit in the queue is refused at once rather than served too late. */
import { refusal } from '../grpc/refusals.ts';

export type Limiter = <T>(work: () => Promise<T>) => Promise<T>;

export function createLimiter({ atATime, maxWaiting }: { readonly atATime: number; readonly maxWaiting: number }): Limiter {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (running >= atATime) {
      if (waiting.length >= maxWaiting) throw refusal('overloaded');
      // The one that leaves hands its place over: `running` stays as it is.
      await new Promise<void>((resolve) => void waiting.push(resolve));
    } else running += 1;
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) running -= 1;
      else next();
    }
  };
}
