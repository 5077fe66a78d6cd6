/**
 * Presence and reports, kept in memory and written for all sessions together: each 10 to 15 s, drawn anew each time so that
 * gateways do not write in step, and within half a second when a gate may wait for a report (B42).
 */
import { newerSet } from '../../drizzle/queries/session-touch.ts';
import type { Scheduler } from '../scheduler.ts';
import type { SessionTouch } from './store.ts';

export const presenceTiming = Object.freeze({ minMs: 10_000, maxMs: 15_000, soonMs: 500, rowsPerStatement: 2_000 });

export type SessionReport = Omit<SessionTouch, 'sessionId' | 'lastSeenAt'>;

export interface PresentSession {
  readonly id: string;
  readonly lastSeenAt: number;
  /** What the daemon reported since the last write; null for nothing. */
  unwritten: SessionReport | null;
  writtenSeenAt: number;
  /** It has ended elsewhere: a newer session of the node took over, or the node was revoked. */
  onFenced(): void;
}

export interface PresenceOptions {
  readonly scheduler: Scheduler;
  sessions(): Iterable<PresentSession>;
  write(touches: readonly SessionTouch[]): Promise<{ readonly ended: readonly string[] }>;
  onError(error: unknown): void;
}

/** A version is only ever raised, in memory as in the database (ROT-019). */
export function mergeReports(earlier: SessionReport | null, later: SessionReport): SessionReport {
  const trustVersion = Math.max(earlier?.trustVersion ?? 0, later.trustVersion ?? 0) || null;
  return { ...earlier, ...later, trustVersion, ...newerSet(earlier?.approverSet, later.approverSet) };
}

export class Presence {
  readonly #options: PresenceOptions;
  readonly #cancel: () => void;
  /** The trust version of each session as it was reported last. */
  readonly #reported = new WeakMap<PresentSession, number>();
  #isSoon = false;
  #running: Promise<void> | null = null;

  constructor(options: PresenceOptions) {
    this.#options = options;
    this.#cancel = options.scheduler.every(presenceTiming, () => void this.flush());
  }

  soon(): void {
    if (this.#isSoon) return;
    this.#isSoon = true;
    this.#options.scheduler.after(presenceTiming.soonMs, () => {
      this.#isSoon = false;
      void this.flush();
    });
  }

  /** One flush at a time: a slow database is not asked twice at once. */
  flush(): Promise<void> {
    this.#running ??= this.#flush().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  close(): void {
    this.#cancel();
  }

  async #flush(): Promise<void> {
    const changed = [...this.#options.sessions()].filter(
      (session) => session.unwritten !== null || session.writtenSeenAt !== session.lastSeenAt,
    );
    for (let at = 0; at < changed.length; at += presenceTiming.rowsPerStatement) {
      if (!(await this.#write(changed.slice(at, at + presenceTiming.rowsPerStatement)))) return;
    }
  }

  /** With the trust version each time, not only when it is new: a database that was restored has forgotten it (H-07). */
  #take(session: PresentSession): SessionTouch {
    const trustVersion = Math.max(session.unwritten?.trustVersion ?? 0, this.#reported.get(session) ?? 0);
    const known = trustVersion === 0 ? {} : { trustVersion };
    const touch = { sessionId: session.id, lastSeenAt: session.lastSeenAt, ...session.unwritten, ...known };
    this.#reported.set(session, trustVersion);
    session.unwritten = null;
    session.writtenSeenAt = touch.lastSeenAt;
    return touch;
  }

  async #write(sessions: readonly PresentSession[]): Promise<boolean> {
    const touches = sessions.map((session) => this.#take(session));
    try {
      const ended = new Set((await this.#options.write(touches)).ended);
      for (const session of sessions) if (ended.has(session.id)) session.onFenced();
      return true;
    } catch (error) {
      sessions.forEach((session, at) => putBack(session, touches[at] as SessionTouch));
      this.#options.onError(error);
      return false;
    }
  }
}

/** Not written: due again, below what was reported since. */
function putBack(session: PresentSession, { sessionId: _sessionId, lastSeenAt: _lastSeenAt, ...report }: SessionTouch): void {
  session.writtenSeenAt = 0;
  session.unwritten = session.unwritten === null ? report : mergeReports(report, session.unwritten);
}
