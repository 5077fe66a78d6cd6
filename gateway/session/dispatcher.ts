/**
 * From the log to the streams: reads, for the sessions that were poked, what may be sent now, and sends it. Nothing is
 * written on a send; cursors live in memory and a crash loses only them.
 *
 * Fencing (B51, B52): each read also says which nodes belong to a newer session, and those sessions end. A read that took
 * longer than a lease is thrown away unsent: this process may have been stopped in between, and what it believed then may be
 * wrong now. The daemon refuses lower epochs as the last line.
 */
import type { Scheduler } from '../scheduler.ts';
import type { OpenCommands, QueuedCommand, ReadCursor } from './store.ts';

export const dispatchLimits = Object.freeze({ nodesPerRead: 500, rowsPerNode: 32, pages: 32, leaseMs: 5_000, idsPerQuestion: 1_000 });

export interface DispatchSession {
  readonly nodeId: string;
  readonly epoch: number;
  readFrom(): number | null;
  /** @returns false when the stream takes no more for now */
  deliver(commands: readonly QueuedCommand[]): boolean;
  outstanding(): string[];
  onCancelled(commandId: string): void;
  onFenced(): void;
  /** What it was given failed: that ends this session and holds up no other. */
  onRefused(error: unknown): void;
}

export interface DispatcherOptions {
  readonly scheduler: Scheduler;
  read(cursors: readonly ReadCursor[], limitPerNode: number): Promise<OpenCommands>;
  cancelledAmong(commandIds: readonly string[]): Promise<readonly string[]>;
  onError(error: unknown): void;
}

interface Reader {
  readonly session: DispatchSession;
  afterSeq: number;
}

export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #dirty = new Set<DispatchSession>();
  /** Of those, the ones for which a command may have been cancelled: only they are asked about. */
  readonly #poked = new Set<DispatchSession>();
  #running: Promise<void> | null = null;

  constructor(options: DispatcherOptions) {
    this.#options = options;
  }

  /** It has room, or is new. */
  wake(session: DispatchSession): void {
    this.#dirty.add(session);
    void this.run();
  }

  /** Its node's log changed, or may have. */
  poke(sessions: Iterable<DispatchSession>): void {
    for (const session of sessions) {
      this.#dirty.add(session);
      this.#poked.add(session);
    }
    void this.run();
  }

  forget(session: DispatchSession): void {
    this.#dirty.delete(session);
    this.#poked.delete(session);
  }

  /** Resolves when nothing is left to do. */
  run(): Promise<void> {
    this.#running ??= this.#run().then((isDone) => {
      this.#running = null;
      // Woken between the last look and now.
      if (isDone && this.#dirty.size > 0) void this.run();
    });
    return this.#running;
  }

  /** @returns false when the database failed: the next poll reads again from the same cursors */
  async #run(): Promise<boolean> {
    // A turn later: pokes of one moment share one read.
    await new Promise<void>((resolve) => void setImmediate(resolve));
    while (this.#dirty.size > 0) {
      const sessions = [...this.#dirty].slice(0, dispatchLimits.nodesPerRead);
      for (const session of sessions) this.#dirty.delete(session);
      try {
        await this.#tellCancelled(sessions.filter((session) => this.#poked.delete(session)));
        await this.#deliver(sessions);
      } catch (error) {
        this.#options.onError(error);
        return false;
      }
    }
    return true;
  }

  async #deliver(sessions: readonly DispatchSession[]): Promise<void> {
    let readers: Reader[] = [];
    for (const session of sessions) {
      const afterSeq = session.readFrom();
      if (afterSeq !== null) readers.push({ session, afterSeq });
    }
    for (let page = 0; readers.length > 0 && page < dispatchLimits.pages; page += 1) readers = await this.#deliverPage(readers);
  }

  /** @returns those with more to read */
  async #deliverPage(readers: readonly Reader[]): Promise<Reader[]> {
    const { scheduler, read } = this.#options;
    const startedAt = scheduler.now();
    const cursors = readers.map(({ session, afterSeq }) => ({ nodeId: session.nodeId, epoch: session.epoch, afterSeq }));
    const { commands, fenced } = await read(cursors, dispatchLimits.rowsPerNode);
    if (scheduler.now() - startedAt > dispatchLimits.leaseMs) return [];
    const byNode = groupByNode(commands);
    const isFenced = new Set(fenced);
    const more: Reader[] = [];
    for (const { session } of readers) {
      if (isFenced.has(session.nodeId)) {
        session.onFenced();
        continue;
      }
      const rows = byNode.get(session.nodeId) ?? [];
      const takesMore = rows.length === 0 || deliverTo(session, rows);
      if (takesMore && rows.length === dispatchLimits.rowsPerNode) more.push({ session, afterSeq: (rows.at(-1) as QueuedCommand).seq });
    }
    return more;
  }

  async #tellCancelled(sessions: readonly DispatchSession[]): Promise<void> {
    const senders = new Map<string, DispatchSession>();
    for (const session of sessions) for (const id of session.outstanding()) senders.set(id, session);
    const ids = [...senders.keys()];
    for (let at = 0; at < ids.length; at += dispatchLimits.idsPerQuestion) {
      const cancelled = await this.#options.cancelledAmong(ids.slice(at, at + dispatchLimits.idsPerQuestion));
      for (const id of cancelled) senders.get(id)?.onCancelled(id);
    }
  }
}

/** @returns as `deliver`; false too for a session that failed on it */
function deliverTo(session: DispatchSession, rows: readonly QueuedCommand[]): boolean {
  try {
    return session.deliver(rows);
  } catch (error) {
    session.onRefused(error);
    return false;
  }
}

function groupByNode(commands: readonly QueuedCommand[]): Map<string, QueuedCommand[]> {
  const groups = new Map<string, QueuedCommand[]>();
  for (const command of commands) {
    const group = groups.get(command.nodeId);
    if (group === undefined) groups.set(command.nodeId, [command]);
    else group.push(command);
  }
  return groups;
}
