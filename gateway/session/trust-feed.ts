/**
 * The published trust bundle, read from the one row of the database (H-02): never computed here, never older than what the
 * deployment publishes at the moment a node is welcomed.
 *
 * `fresh` answers with a read that began after it was called, and reads at most one at a time: a thousand nodes that arrive
 * together share a few reads, and none of them gets a bundle from before its arrival.
 */
import type { PublishedTrust } from './store.ts';

export class TrustFeed {
  readonly #read: () => Promise<PublishedTrust | null>;
  readonly #onChange: (trust: PublishedTrust) => void;
  #current: PublishedTrust | null = null;
  #running: Promise<PublishedTrust | null> | null = null;
  #next: Promise<PublishedTrust | null> | null = null;

  constructor(read: () => Promise<PublishedTrust | null>, onChange: (trust: PublishedTrust) => void) {
    this.#read = read;
    this.#onChange = onChange;
  }

  /** As last read. */
  get current(): PublishedTrust | null {
    return this.#current;
  }

  /** @throws when the database does not answer */
  fresh(): Promise<PublishedTrust | null> {
    this.#next ??= this.#afterRunning();
    return this.#next;
  }

  async #afterRunning(): Promise<PublishedTrust | null> {
    await this.#running?.catch(() => null);
    this.#next = null;
    this.#running = this.#readOnce();
    return this.#running;
  }

  async #readOnce(): Promise<PublishedTrust | null> {
    const trust = await this.#read();
    const isNew = trust !== null && trust.version > (this.#current?.version ?? 0);
    if (isNew) {
      this.#current = trust;
      this.#onChange(trust);
    }
    return this.#current;
  }
}
