/**
 * What the database says by itself: one connection of its own that only listens, never pooled, never in a transaction (B65, B67).
 *
 * A notification is a hint; a poll finds everything without it. So a dead listener costs latency, not commands, and must
 * still be noticed: at once and then each 10 s it sends itself a canary and expects it back. A connection that is cut without a word, that
 * a proxy keeps open to nowhere, or whose LISTEN ended in another one's pool, answers none and is replaced.
 */
import type { Client, Notification } from 'pg';

export const listenTiming = Object.freeze({ canaryMs: 10_000, answerWithinMs: 4_000, retryMinMs: 250, retryMaxMs: 5_000 });

/** Runs `fn` once; answers how to cancel. */
type After = (delayMs: number, fn: () => void) => () => void;

export interface DatabaseListenerOptions {
  /** Of the process; its canaries go by this name. */
  readonly name: string;
  readonly channels: readonly string[];
  /** Default: timers that keep no process alive. */
  readonly after?: After;
  /** A connection outside every pool. */
  connect(): Promise<Client>;
  onNotification(channel: string, payload: string | undefined): void;
  /** It listens, for the first time or again: whatever was said before may have been missed. */
  onListening(): void;
  /** It could not listen, or does no more. It is tried again. */
  onLost(error: unknown): void;
}

/** `end` would wait for a peer that may never answer. */
const cut = (client: Client): void => (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();

const afterUnheld: After = (delayMs, fn) => {
  const timer = setTimeout(fn, delayMs).unref();
  return () => clearTimeout(timer);
};

export class DatabaseListener {
  readonly #options: DatabaseListenerOptions;
  readonly #after: After;
  readonly #canaryChannel: string;
  #client: Client | null = null;
  /** Connected, and not listening yet. */
  #opening: Client | null = null;
  #attempt: Promise<void> = Promise.resolve();
  #failures = 0;
  #isClosed = false;
  #isHeard = false;
  #cancelTimer: () => void = () => undefined;
  #onCanary: (() => void) | null = null;

  constructor(options: DatabaseListenerOptions) {
    this.#options = options;
    this.#after = options.after ?? afterUnheld;
    this.#canaryChannel = `bc_canary_${Buffer.from(options.name).toString('hex').slice(0, 48)}`;
  }

  get isListening(): boolean {
    return this.#client !== null;
  }

  /** What is said arrives: a canary of this connection came back. Behind a pool of transactions a LISTEN succeeds and nothing ever comes. */
  get isHeard(): boolean {
    return this.#client !== null && this.#isHeard;
  }

  start(): void {
    this.#attempt = this.#listen();
  }

  /** Ends the connection, also one that is only being opened: no longer than a connect may take. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer();
    const client = this.#client;
    this.#client = null;
    await client?.end().catch(() => undefined);
    if (this.#opening !== null) cut(this.#opening);
    await this.#attempt;
  }

  async #listen(): Promise<void> {
    try {
      const client = await this.#options.connect();
      this.#opening = client;
      client.on('notification', (message) => this.#onNotification(message));
      client.on('error', (error) => this.#lost(client, error));
      client.on('end', () => this.#lost(client, new Error('the listening connection ended')));
      if (this.#isClosed) return await this.#giveBack(client);
      for (const channel of [...this.#options.channels, this.#canaryChannel]) await client.query(`listen ${channel}`);
      if (this.#isClosed) return await this.#giveBack(client);
      this.#opening = null;
      this.#client = client;
      this.#sendCanary(client);
      this.#options.onListening();
    } catch (error) {
      // It may live although it did not listen: nobody would ever end it.
      if (this.#opening !== null) cut(this.#opening);
      this.#opening = null;
      this.#retry(error);
    }
  }

  async #giveBack(client: Client): Promise<void> {
    this.#opening = null;
    await client.end().catch(() => undefined);
  }

  #onNotification({ channel, payload }: Notification): void {
    if (channel === this.#canaryChannel) this.#onCanary?.();
    else this.#options.onNotification(channel, payload);
  }

  #sendCanary(client: Client): void {
    this.#cancelTimer = this.#after(listenTiming.answerWithinMs, () => this.#lost(client, new Error('the canary did not come back')));
    this.#onCanary = () => {
      this.#onCanary = null;
      this.#cancelTimer();
      if (this.#client !== client) return;
      this.#isHeard = true;
      this.#failures = 0;
      this.#cancelTimer = this.#after(listenTiming.canaryMs, () => this.#sendCanary(client));
    };
    client.query('select pg_notify($1, $2)', [this.#canaryChannel, '']).catch((error: unknown) => this.#lost(client, error));
  }

  #lost(client: Client, error: unknown): void {
    if (this.#client !== client) return;
    this.#client = null;
    this.#isHeard = false;
    this.#onCanary = null;
    this.#cancelTimer();
    cut(client);
    this.#retry(error);
  }

  #retry(error: unknown): void {
    if (this.#isClosed) return;
    this.#options.onLost(error);
    const delayMs = Math.min(listenTiming.retryMaxMs, listenTiming.retryMinMs * 2 ** Math.min(this.#failures, 8));
    this.#failures += 1;
    this.#cancelTimer = this.#after(delayMs, () => this.start());
  }
}
