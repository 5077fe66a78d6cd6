/** A clock that stands until a test moves it. */
import type { Scheduler } from '../../gateway/scheduler.ts';

interface Timer {
  at: number;
  readonly everyMs: number | null;
  readonly fn: () => void;
}

export class ManualScheduler implements Scheduler {
  #now: number;
  readonly #timers = new Set<Timer>();

  constructor(now: number = Date.now()) {
    this.#now = now;
  }

  readonly now = (): number => this.#now;

  get pending(): number {
    return this.#timers.size;
  }

  readonly after = (delayMs: number, fn: () => void): (() => void) => this.#add({ at: this.#now + delayMs, everyMs: null, fn });

  readonly every = ({ minMs, maxMs }: { minMs: number; maxMs: number }, fn: () => void): (() => void) => {
    const everyMs = (minMs + maxMs) / 2;
    return this.#add({ at: this.#now + everyMs, everyMs, fn });
  };

  /** Moves the clock and runs what is due, in order. */
  advance(ms: number): void {
    const until = this.#now + ms;
    for (;;) {
      const due = [...this.#timers].filter((timer) => timer.at <= until).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.#now = Math.max(this.#now, due.at);
      if (due.everyMs === null) this.#timers.delete(due);
      else due.at += due.everyMs;
      due.fn();
    }
    this.#now = until;
  }

  #add(timer: Timer): () => void {
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }
}

/** Lets everything that is due in this process happen: promises, sockets on this machine. */
export async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise<void>((resolve) => void setImmediate(resolve));
}
