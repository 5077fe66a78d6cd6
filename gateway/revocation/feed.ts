/**
 * What was revoked, known to this gateway within a second (REV-007 to REV-013).
 *
 * At the start every revoked, unexpired certificate is loaded before the listener opens; then each second whatever was
 * committed after the last number seen. Numbers are taken under one row's lock, so they appear in commit order and nothing
 * can slip in behind the cursor (H-16); the full set is read again each five minutes all the same, which also forgets what
 * expired. After three failures in a row the feed asks each 5 s until it is answered; it never gives up and never stops the
 * gateway.
 */
import type { Scheduler } from '../scheduler.ts';
import type { Revocation } from '../session/store.ts';
import type { CertificateRef } from '../tls/peer.ts';

export const feedTiming = Object.freeze({ pollMs: 1_000, degradedMs: 5_000, failuresToDegrade: 3, reloadMs: 300_000 });

export interface RevocationFeedOptions {
  readonly scheduler: Scheduler;
  readAll(): Promise<{ readonly seq: number; readonly revocations: readonly Revocation[] }>;
  /** `seq`: the last number that was given out. */
  readAfter(seq: number): Promise<{ readonly seq: number; readonly revocations: readonly Revocation[] }>;
  /** Newly learnt ones, in commit order: their live sessions end. */
  onRevoked(revocations: readonly Revocation[]): void;
  onError(error: unknown): void;
}

const keyOf = ({ issuer, serial }: CertificateRef): string => `${issuer}|${serial}`;

export class RevocationFeed {
  readonly #options: RevocationFeedOptions;
  #revoked = new Set<string>();
  #seq = 0;
  #failures = 0;
  #loadedAt = 0;
  #cancel: () => void = () => undefined;
  #isClosed = false;
  #running: Promise<void> | null = null;

  constructor(options: RevocationFeedOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#revoked.size;
  }

  get seq(): number {
    return this.#seq;
  }

  get isDegraded(): boolean {
    return this.#failures >= feedTiming.failuresToDegrade;
  }

  isRevoked(certificate: CertificateRef): boolean {
    return this.#revoked.has(keyOf(certificate));
  }

  /** @throws when the first load fails: a gateway that knows no revocations does not listen */
  async start(): Promise<void> {
    await this.#load();
    this.#schedule();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }

  /** One look; the timer's work, and what a notification asks for. One at a time: a second asker waits for the first's. */
  poll(): Promise<void> {
    this.#running ??= this.#poll().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #poll(): Promise<void> {
    try {
      if (this.#options.scheduler.now() - this.#loadedAt >= feedTiming.reloadMs) await this.#load();
      else await this.#readOn();
      this.#failures = 0;
    } catch (error) {
      this.#failures += 1;
      this.#options.onError(error);
    }
  }

  #schedule(): void {
    if (this.#isClosed) return;
    const delayMs = this.isDegraded ? feedTiming.degradedMs : feedTiming.pollMs;
    this.#cancel = this.#options.scheduler.after(delayMs, () => void this.poll().then(() => this.#schedule()));
  }

  async #load(): Promise<void> {
    const { seq, revocations } = await this.#options.readAll();
    const known = this.#revoked;
    this.#revoked = new Set(revocations.map(keyOf));
    this.#seq = seq;
    this.#loadedAt = this.#options.scheduler.now();
    const added = revocations.filter((revocation) => !known.has(keyOf(revocation)));
    if (added.length > 0) this.#options.onRevoked(added);
  }

  async #readOn(): Promise<void> {
    const { seq, revocations: added } = await this.#options.readAfter(this.#seq);
    // Numbers are never taken back: the database is one that was restored, and gives numbers below the cursor once more.
    if (seq < this.#seq) return this.#load();
    const last = added.at(-1);
    if (last === undefined) return;
    for (const revocation of added) this.#revoked.add(keyOf(revocation));
    this.#seq = last.seq;
    this.#options.onRevoked(added);
  }
}
