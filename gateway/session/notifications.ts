/**
 * Pokes from the database: one connection of its own that only listens, never pooled, never in a transaction (B65, B67).
 *
 * A notification is a hint; a poll finds everything without it. So a dead listener costs latency, not commands, and must
 * still be noticed: each 10 s it sends itself a canary and expects it back. A connection that is cut without a word, or that
 * a proxy keeps open to nowhere, answers none and is replaced; after every LISTEN one sweep reads what was missed.
 */
import type { Client, Notification } from 'pg';
import type { Scheduler } from '../scheduler.ts';

export const listenTiming = Object.freeze({ canaryMs: 10_000, answerWithinMs: 4_000, retryMinMs: 250, retryMaxMs: 5_000 });

export const pokeChannel = 'bc_gateway';
export const trustChannel = 'bc_trust';
export const revocationChannel = 'bc_revocation';
export const specChannel = 'bc_spec';

export interface NotificationsOptions {
  readonly gatewayId: string;
  readonly scheduler: Scheduler;
  /** A connection outside every pool. */
  connect(): Promise<Client>;
  /** These nodes have something new; 'sweep': any may have. */
  onPoke(nodeIds: readonly string[] | 'sweep'): void;
  onTrust(): void;
  onRevocation(): void;
  /** The desired state of these nodes changed; 'sweep': of any. */
  onSpecs(nodeIds: readonly string[] | 'sweep'): void;
  onLost(error: unknown): void;
}

/** Anything that is not a list of ids, a cut payload too, means: look everywhere (B68). */
export function parsePoke(payload: string | undefined): readonly string[] | 'sweep' {
  try {
    const parsed: unknown = JSON.parse(payload ?? '');
    return Array.isArray(parsed) && parsed.every((id) => typeof id === 'string') ? parsed : 'sweep';
  } catch {
    return 'sweep';
  }
}

/** `end` would wait for a peer that may never answer. */
const cut = (client: Client): void => (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();

export class Notifications {
  readonly #options: NotificationsOptions;
  readonly #canaryChannel: string;
  #client: Client | null = null;
  /** Connected, and not listening yet. */
  #opening: Client | null = null;
  #attempt: Promise<void> = Promise.resolve();
  #failures = 0;
  #isClosed = false;
  #cancelTimer: () => void = () => undefined;
  #onCanary: (() => void) | null = null;

  constructor(options: NotificationsOptions) {
    this.#options = options;
    this.#canaryChannel = `bc_canary_${Buffer.from(options.gatewayId).toString('hex').slice(0, 48)}`;
  }

  get isListening(): boolean {
    return this.#client !== null;
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
      for (const channel of [pokeChannel, trustChannel, revocationChannel, specChannel, this.#canaryChannel])
        await client.query(`listen ${channel}`);
      if (this.#isClosed) return await this.#giveBack(client);
      this.#opening = null;
      this.#client = client;
      this.#failures = 0;
      this.#scheduleCanary(client);
      this.#options.onPoke('sweep');
      this.#options.onTrust();
      this.#options.onRevocation();
      this.#options.onSpecs('sweep');
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
    if (channel === pokeChannel) this.#options.onPoke(parsePoke(payload));
    else if (channel === trustChannel) this.#options.onTrust();
    else if (channel === revocationChannel) this.#options.onRevocation();
    else if (channel === specChannel) this.#options.onSpecs(parsePoke(payload));
    else this.#onCanary?.();
  }

  #scheduleCanary(client: Client): void {
    this.#cancelTimer = this.#options.scheduler.after(listenTiming.canaryMs, () => this.#sendCanary(client));
  }

  #sendCanary(client: Client): void {
    const { scheduler } = this.#options;
    this.#cancelTimer = scheduler.after(listenTiming.answerWithinMs, () => this.#lost(client, new Error('the canary did not come back')));
    this.#onCanary = () => {
      this.#onCanary = null;
      this.#cancelTimer();
      if (this.#client === client) this.#scheduleCanary(client);
    };
    client.query('select pg_notify($1, $2)', [this.#canaryChannel, '']).catch((error: unknown) => this.#lost(client, error));
  }

  #lost(client: Client, error: unknown): void {
    if (this.#client !== client) return;
    this.#client = null;
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
    this.#cancelTimer = this.#options.scheduler.after(delayMs, () => this.start());
  }
}
