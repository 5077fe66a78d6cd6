/** Waits for a condition of another process, which tells nobody when it changes. The limit is for a hang, not a measurement. */
import { setTimeout } from 'node:timers/promises';

export async function eventually<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
  withinMs = 30_000,
): Promise<T> {
  const until = performance.now() + withinMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > until) throw new Error(`${what}: not within ${withinMs} ms`);
    await setTimeout(25);
  }
}
