/**
 * How long the database has been away, as seen by everything that asks it. Sessions are kept through a short absence; after
 * a while new ones are refused, and much later the open ones are released, spread out, so that nodes can find a gateway that
 * is not cut off (B40). Nothing here ever ends the process.
 */
import { isControlError } from '../../domain/errors.ts';

export const databaseLimits = Object.freeze({ refuseAfterMs: 10_000, releaseAfterMs: 180_000 });

export class DatabaseWatch {
  readonly #now: () => number;
  #failingSince: number | null = null;

  constructor(now: () => number) {
    this.#now = now;
  }

  succeeded(): void {
    this.#failingSince = null;
  }

  /** Counts only what says that the database is away; a refused statement was an answer. */
  failed(error: unknown): void {
    if (isControlError(error) && error.code !== 'UNAVAILABLE' && error.code !== 'INTERNAL') return;
    this.#failingSince ??= this.#now();
  }

  get awayForMs(): number {
    return this.#failingSince === null ? 0 : this.#now() - this.#failingSince;
  }

  get isRefusing(): boolean {
    return this.awayForMs >= databaseLimits.refuseAfterMs;
  }

  get isReleasing(): boolean {
    return this.awayForMs >= databaseLimits.releaseAfterMs;
  }

  /** Runs `work` and keeps count. @throws what it throws */
  async watch<T>(work: () => Promise<T>): Promise<T> {
    try {
      const result = await work();
      this.succeeded();
      return result;
    } catch (error) {
      this.failed(error);
      throw error;
    }
  }
}
