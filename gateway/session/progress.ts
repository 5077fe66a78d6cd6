/**
 * How far commands are, as daemons say: the last word of each command, once a second in one statement for all sessions.
 *
 * Talk, not record: nothing waits for it and nobody is told that it is stored. What cannot be written is dropped, because the
 * next word says more. So it has its own way to the database, and no flood of it delays an ack or a result.
 *
 * Threat model: a daemon that reports without end costs one row a second for each command it names; one that makes up
 * commands is heard for as many as could run, and the database keeps none of them.
 */
import type { Scheduler } from '../scheduler.ts';
import type { CommandProgressRow } from './store.ts';

export const progressLimits = Object.freeze({ everyMs: 1_000, commandsOfSession: 64, commands: 20_000, rowsPerStatement: 1_000 });

export interface ReportingSession {
  onFenced(): void;
}

export interface ProgressOptions {
  readonly scheduler: Scheduler;
  write(rows: readonly CommandProgressRow[]): Promise<{ readonly fenced: readonly string[] }>;
  onError(error: unknown): void;
}

type LastWords = Map<string, CommandProgressRow>;

export class ProgressBoard {
  readonly #options: ProgressOptions;
  #waiting = new Map<ReportingSession, LastWords>();
  #size = 0;
  #isScheduled = false;
  #running: Promise<void> | null = null;

  constructor(options: ProgressOptions) {
    this.#options = options;
  }

  /** Rows that wait to be written. */
  get size(): number {
    return this.#size;
  }

  push(session: ReportingSession, row: CommandProgressRow): void {
    const words: LastWords = this.#waiting.get(session) ?? new Map();
    if (!words.has(row.commandId)) {
      if (words.size >= progressLimits.commandsOfSession || this.#size >= progressLimits.commands) return;
      this.#size += 1;
    }
    words.set(row.commandId, row);
    this.#waiting.set(session, words);
    this.#schedule();
  }

  /** Writes what was said so far; one write at a time, a slow database is not asked twice at once. */
  flush(): Promise<void> {
    this.#running ??= this.#flush().finally(() => {
      this.#running = null;
      if (this.#size > 0) this.#schedule();
    });
    return this.#running;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#options.scheduler.after(progressLimits.everyMs, () => {
      this.#isScheduled = false;
      void this.flush();
    });
  }

  async #flush(): Promise<void> {
    const said = [...this.#waiting].flatMap(([session, words]) => [...words.values()].map((row) => ({ session, row })));
    this.#waiting = new Map();
    this.#size = 0;
    try {
      for (let at = 0; at < said.length; at += progressLimits.rowsPerStatement)
        await this.#write(said.slice(at, at + progressLimits.rowsPerStatement));
    } catch (error) {
      this.#options.onError(error);
    }
  }

  /** A session is fenced by its node's epoch: one of its commands says it of all. */
  async #write(said: readonly { readonly session: ReportingSession; readonly row: CommandProgressRow }[]): Promise<void> {
    const fenced = new Set((await this.#options.write(said.map(({ row }) => row))).fenced);
    const ended = new Set(said.filter(({ row }) => fenced.has(row.commandId)).map(({ session }) => session));
    for (const session of ended) session.onFenced();
  }
}
