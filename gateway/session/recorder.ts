/**
 * What daemons say about commands, written in batches: one transaction each few milliseconds for all sessions, instead of
 * one per frame. A daemon hears that its result is stored only after the commit.
 *
 * While the database is away, batches wait in order and are tried again; beyond a bound of items or bytes, sessions are no
 * longer read from (`isFull`), so the wait costs daemons a pause and the gateway no memory. A row that the database refuses
 * for what it is must not hold up the rest: the batch is then written row by row and the bad one ends its session.
 */
import { codeOf, errorTable } from '../../domain/errors.ts';
import type { Scheduler } from '../scheduler.ts';
import type { Said } from './contract.ts';
import type { CommandAckRow, CommandRejectRow, CommandResultRow, RecordedBatch, SessionBatch } from './store.ts';

export interface RecordingSession {
  onReceipts(commandIds: readonly string[]): void;
  onFenced(): void;
  /** The database refuses what this session said. */
  onRefused(error: unknown): void;
}

type Item = Said & { readonly session: RecordingSession };

export interface RecorderOptions {
  readonly record: (batch: SessionBatch) => Promise<RecordedBatch>;
  readonly scheduler: Scheduler;
  readonly tickMs?: number;
  onUnknown?(commandIds: readonly string[]): void;
  /** There is room again. */
  onRoom(): void;
}

export const recorderLimits = Object.freeze({ batch: 500, items: 20_000, bytes: 32 * 1024 * 1024, retryMinMs: 100, retryMaxMs: 5_000 });

export class Recorder {
  readonly #options: RecorderOptions;
  #waiting: Item[] = [];
  #bytes = 0;
  #isFlushing = false;
  #isScheduled = false;
  #wasFull = false;
  #failures = 0;
  #idle: (() => void)[] = [];

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  get isFull(): boolean {
    const full = this.#waiting.length >= recorderLimits.items || this.#bytes >= recorderLimits.bytes;
    if (full) this.#wasFull = true;
    return full;
  }

  get pending(): number {
    return this.#waiting.length;
  }

  push(session: RecordingSession, said: Said): void {
    this.#waiting.push({ ...said, session });
    this.#bytes += sizeOf(said);
    this.#schedule(this.#options.tickMs ?? 10);
  }

  /** Resolves when everything said so far is written. */
  async drained(): Promise<void> {
    if (this.#waiting.length === 0 && !this.#isFlushing) return;
    await new Promise<void>((resolve) => void this.#idle.push(resolve));
  }

  #schedule(delayMs: number): void {
    if (this.#isScheduled || this.#isFlushing) return;
    this.#isScheduled = true;
    this.#options.scheduler.after(delayMs, () => {
      this.#isScheduled = false;
      void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    this.#isFlushing = true;
    const items = this.#waiting.slice(0, recorderLimits.batch);
    const isDone = await this.#write(items);
    this.#isFlushing = false;
    if (isDone) this.#settle(items.length);
    if (this.#waiting.length > 0) this.#schedule(isDone ? 0 : this.#retryInMs());
    else for (const resolve of this.#idle.splice(0)) resolve();
  }

  #settle(written: number): void {
    this.#failures = 0;
    for (const item of this.#waiting.splice(0, written)) this.#bytes -= sizeOf(item);
    if (!this.#wasFull || this.isFull) return;
    this.#wasFull = false;
    this.#options.onRoom();
  }

  #retryInMs(): number {
    this.#failures += 1;
    return Math.min(recorderLimits.retryMaxMs, recorderLimits.retryMinMs * 2 ** Math.min(this.#failures, 10));
  }

  /** @returns false when it must be tried again as a whole */
  async #write(items: readonly Item[]): Promise<boolean> {
    try {
      this.#tell(items, await this.#options.record(batchOf(items)));
      return true;
    } catch (error) {
      if (errorTable[codeOf(error)].retryable) return false;
      return this.#writeOneByOne(items);
    }
  }

  /** Everything here is repeatable: a row that was written before is written again without effect. */
  async #writeOneByOne(items: readonly Item[]): Promise<boolean> {
    for (const item of items) {
      try {
        this.#tell([item], await this.#options.record(batchOf([item])));
      } catch (error) {
        if (errorTable[codeOf(error)].retryable) return false;
        item.session.onRefused(error);
      }
    }
    return true;
  }

  #tell(items: readonly Item[], { settled, fenced, unknown }: RecordedBatch): void {
    if (unknown.length > 0) this.#options.onUnknown?.(unknown);
    const isFenced = new Set(fenced);
    const isSettled = new Set(settled);
    const receipts = new Map<RecordingSession, string[]>();
    for (const { session, kind, row } of items) {
      if (isFenced.has(row.commandId)) session.onFenced();
      else if (kind === 'result' && isSettled.has(row.commandId)) receipts.set(session, [...(receipts.get(session) ?? []), row.commandId]);
    }
    for (const [session, ids] of receipts) session.onReceipts(ids);
  }
}

function batchOf(items: readonly Item[]): SessionBatch {
  const acks: CommandAckRow[] = [];
  const rejects: CommandRejectRow[] = [];
  const results: CommandResultRow[] = [];
  for (const item of items) {
    if (item.kind === 'ack') acks.push(item.row);
    else if (item.kind === 'reject') rejects.push(item.row);
    else results.push(item.row);
  }
  return { acks, rejects, results };
}

const sizeOf = (said: Said): number => 256 + (said.kind === 'result' ? (said.row.payload?.length ?? 0) + said.row.errorMessage.length : 0);
