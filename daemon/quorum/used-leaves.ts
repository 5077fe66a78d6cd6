/**
 * The leaves that ran here, each with its command, until their approval ends (DMN-012 to DMN-016).
 *
 * Invariants
 *   1. A leaf has one holder. The first word stands; the same command again is the same holder (DMN-015).
 *   2. A leaf is forgotten only when signed statements prove that its approval has ended: by the time floor, not by the clock, which
 *      a gateway may move forward and back again.
 *   3. What cannot be read is not empty: it admits nothing until a person has looked at it.
 */
import { type ClaimHolder, isSameHolder } from './claims.ts';

export interface UsedLeaf extends ClaimHolder {
  readonly leaf: string;
  readonly notAfterMs: number;
}

/** One batch may be all for one site agent, and a few may be open at once. */
export const maxUsedLeaves = 100_000;

/** What differs from the last time it was saved. */
export interface LeavesChange {
  /** Not saved before. */
  readonly added: readonly UsedLeaf[];
  /** Some that were saved are no longer to be kept. */
  readonly forgets: boolean;
  /** What is kept now, with `added`; asked for only where all of it is written. */
  readonly all: () => readonly UsedLeaf[];
}

export interface UsedLeavesOptions {
  readonly entries: Iterable<UsedLeaf>;
  /** Resolves when the change survives a power cut. */
  readonly save: (change: LeavesChange) => Promise<void>;
  /** Why what was kept cannot be read; null when it can. */
  readonly unreadable?: string | null;
  readonly maxEntries?: number;
}

export class UsedLeaves {
  readonly unreadable: string | null;
  readonly #entries = new Map<string, UsedLeaf>();
  readonly #save: UsedLeavesOptions['save'];
  readonly #maxEntries: number;
  #unsaved: UsedLeaf[] = [];
  #forgets = false;
  #work: Promise<void> = Promise.resolve();

  constructor({ entries, save, unreadable = null, maxEntries = maxUsedLeaves }: UsedLeavesOptions) {
    this.unreadable = unreadable;
    this.#save = save;
    this.#maxEntries = maxEntries;
    for (const entry of entries) this.#entries.set(entry.leaf, entry);
  }

  get size(): number {
    return this.#entries.size;
  }

  isFull(): boolean {
    return this.#entries.size >= this.#maxEntries;
  }

  find(leaf: string): UsedLeaf | undefined {
    return this.#entries.get(leaf);
  }

  /** Takes the leaf from this moment on, in memory. @returns false when another command holds it, or nothing can be kept */
  take(entry: UsedLeaf): boolean {
    const held = this.#entries.get(entry.leaf);
    if (held !== undefined) return isSameHolder(held, entry);
    if (this.unreadable !== null || this.isFull()) return false;
    this.#entries.set(entry.leaf, entry);
    this.#unsaved.push(entry);
    return true;
  }

  /** Durable when it returns: all that was taken. Never called on what cannot be read, which is left as it is. */
  save(): Promise<void> {
    // Whoever waits while one is under way shares the next.
    const done = this.#work.then(() => this.#saveChange());
    this.#work = done.catch(() => undefined);
    return done;
  }

  async #saveChange(): Promise<void> {
    const [added, forgets] = [this.#unsaved, this.#forgets];
    if (this.unreadable !== null || (added.length === 0 && !forgets)) return;
    [this.#unsaved, this.#forgets] = [[], false];
    try {
      await this.#save({ added, forgets, all: () => [...this.#entries.values()] });
    } catch (error) {
      // Still to be saved, by whoever comes next.
      this.#unsaved = [...added, ...this.#unsaved];
      this.#forgets ||= forgets;
      throw error;
    }
  }

  /** Forgets what no approval admits any more. @param floorMs what signed statements prove about server time */
  async prune(floorMs: number): Promise<void> {
    const isEnded = ({ notAfterMs }: UsedLeaf): boolean => floorMs > notAfterMs;
    const ended = [...this.#entries.values()].filter(isEnded);
    if (ended.length === 0 || this.unreadable !== null) return;
    for (const { leaf } of ended) this.#entries.delete(leaf);
    this.#unsaved = this.#unsaved.filter((entry) => !isEnded(entry));
    this.#forgets = true;
    await this.save();
  }
}
