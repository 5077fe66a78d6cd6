/**
 * The database's words about runs on machines, brought to the looks that wait in this process. A look that finds nothing yet waits here
 * some seconds for the next word, instead of coming back every second to ask.
 *
 * Each holds a slot of the worker, so only so many may: who comes when it is full asks by the clock, as all do where no word arrives.
 */
import type { HeardRun, RunWords } from '../activities/metal-ports.ts';

export interface RunWordsOptions {
  readonly isHeard: () => boolean;
  /** Looks that wait at the same time. */
  readonly most: number;
}

export interface LocalRunWords extends RunWords {
  /** Something happened that a run may wait for. */
  say(runId: string): void;
  /** Words may be missed from here on, or were: everybody looks. */
  sayAll(): void;
  /** Nobody waits any more: the worker ends. */
  close(): void;
}

interface Waiting {
  wake(): void;
}

export function createRunWords({ isHeard, most }: RunWordsOptions): LocalRunWords {
  const byRun = new Map<string, Set<Waiting>>();
  const state = { count: 0, isClosed: false };

  const listen = (runId: string): HeardRun | null => {
    if (state.isClosed || state.count >= most || !isHeard()) return null;
    const pending = { said: false };
    let resolveNext: ((said: boolean) => void) | null = null;
    const tell = (said: boolean): void => {
      resolveNext?.(said);
      resolveNext = null;
    };
    const waiting: Waiting = {
      wake: () => {
        pending.said = true;
        tell(true);
      },
    };
    const others = byRun.get(runId) ?? new Set();
    byRun.set(runId, others.add(waiting));
    state.count += 1;
    return {
      async next(withinMs) {
        if (!pending.said && !state.isClosed) {
          let timer: NodeJS.Timeout | undefined;
          await new Promise<boolean>((resolve) => {
            resolveNext = resolve;
            timer = setTimeout(() => tell(false), withinMs);
          });
          clearTimeout(timer);
        }
        const { said } = pending;
        pending.said = false;
        return said && !state.isClosed;
      },
      end() {
        if (!others.delete(waiting)) return;
        state.count -= 1;
        if (others.size === 0) byRun.delete(runId);
      },
    };
  };

  const wakeAll = (): void => {
    for (const waiting of [...byRun.values()].flatMap((set) => [...set])) waiting.wake();
  };
  return {
    listen,
    say(runId) {
      for (const waiting of byRun.get(runId) ?? []) waiting.wake();
    },
    sayAll: wakeAll,
    close() {
      state.isClosed = true;
      wakeAll();
    },
  };
}
