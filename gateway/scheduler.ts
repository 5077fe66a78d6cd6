/** Time as an argument: the gateway reads no clock and sets no timer but through this; tests hold one by hand. */
export interface Scheduler {
  /** Unix milliseconds. */
  now(): number;
  /** Runs `fn` once; answers how to cancel. */
  after(delayMs: number, fn: () => void): () => void;
  /** Runs `fn` again and again, each pause drawn anew from [minMs, maxMs], so that processes never fall into step (B42, B43). */
  every(pause: { readonly minMs: number; readonly maxMs: number }, fn: () => void): () => void;
}

export function createSystemScheduler(random: () => number = Math.random): Scheduler {
  const after = (delayMs: number, fn: () => void): (() => void) => {
    const timer = setTimeout(fn, delayMs);
    timer.unref();
    return () => clearTimeout(timer);
  };
  return {
    now: Date.now,
    after,
    every({ minMs, maxMs }, fn) {
      let cancel: () => void = () => undefined;
      const next = (): void => {
        cancel = after(minMs + random() * (maxMs - minMs), () => {
          next();
          fn();
        });
      };
      next();
      return () => cancel();
    },
  };
}
