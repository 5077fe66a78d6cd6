/**
 * Desired state that changed while its node is connected: told by a notification, found by a sweep when that was lost. One read at
 * a time, for a page of sessions; what is asked for meanwhile is read after it, so nothing that was written before the asking is
 * missed. The core sends a state once, and only forward.
 */
import type { HeldState, StoredDesiredState } from './store.ts';

export interface SpecSession {
  readonly nodeId: string;
  readonly core: { readonly specHeld: number };
  onDesiredState(state: StoredDesiredState): void;
}

export interface SpecFeedOptions {
  /** The session of each node that is connected here. */
  sessions(): Iterable<SpecSession>;
  find(nodeId: string): SpecSession | undefined;
  read(held: readonly HeldState[]): Promise<ReadonlyMap<string, StoredDesiredState>>;
  onError(error: unknown): void;
}

const pageSize = 500;

export class SpecFeed {
  readonly #options: SpecFeedOptions;
  #waiting: Set<string> | 'sweep' = new Set();
  #isReading = false;

  constructor(options: SpecFeedOptions) {
    this.#options = options;
  }

  /** These nodes, or every one that is connected here. */
  look(nodeIds: readonly string[] | 'sweep'): void {
    if (nodeIds === 'sweep') this.#waiting = 'sweep';
    else if (this.#waiting !== 'sweep') for (const id of nodeIds) if (this.#options.find(id) !== undefined) this.#waiting.add(id);
    if (!this.#isReading) void this.#readAll();
  }

  async #readAll(): Promise<void> {
    this.#isReading = true;
    try {
      for (let ids = this.#take(); ids.length > 0; ids = this.#take())
        for (let at = 0; at < ids.length; at += pageSize) await this.#readPage(ids.slice(at, at + pageSize));
    } catch (error) {
      // The next sweep finds what this one did not.
      this.#options.onError(error);
    } finally {
      this.#isReading = false;
    }
  }

  #take(): string[] {
    const waiting = this.#waiting;
    this.#waiting = new Set();
    return waiting === 'sweep' ? Array.from(this.#options.sessions(), ({ nodeId }) => nodeId) : [...waiting];
  }

  async #readPage(nodeIds: readonly string[]): Promise<void> {
    const held = nodeIds.flatMap((nodeId): HeldState[] => {
      const session = this.#options.find(nodeId);
      return session === undefined ? [] : [{ nodeId, generation: session.core.specHeld }];
    });
    if (held.length === 0) return;
    for (const [nodeId, state] of await this.#options.read(held)) this.#options.find(nodeId)?.onDesiredState(state);
  }
}
