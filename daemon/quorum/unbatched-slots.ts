/**
 * Destructive commands outside of batches, counted over the last hour (DMN-017 to DMN-020, DMN-028).
 *
 * Invariants
 *   1. The hour is one of the machine's own clock: no word of a gateway about the time ages the count.
 *   2. A clock that is set back frees nothing (A-PKI-37): time counts from the newest instant that was seen.
 *   3. The count survives a restart; what cannot be read is a full hour, not an empty one.
 */
import { hour } from '../../domain/time.ts';
import { type ClaimHolder, isSameHolder } from './claims.ts';

export interface UsedSlot extends ClaimHolder {
  readonly atMs: number;
}

/** However high the approvers set the allowance: what the file holds has a bound. */
export const maxSlots = 1_000;

export interface KeptSlots {
  readonly slots: readonly UsedSlot[];
  /** The newest instant of the machine's clock at which a slot was taken. */
  readonly newestMs: number;
}

export interface UnbatchedSlotsOptions {
  readonly kept: KeptSlots;
  readonly save: (kept: KeptSlots) => Promise<void>;
  readonly unreadable?: string | null;
}

export class UnbatchedSlots {
  readonly unreadable: string | null;
  readonly #save: UnbatchedSlotsOptions['save'];
  #slots: readonly UsedSlot[];
  #newestMs: number;
  #work: Promise<void> = Promise.resolve();

  constructor({ kept, save, unreadable = null }: UnbatchedSlotsOptions) {
    this.unreadable = unreadable;
    this.#save = save;
    this.#slots = kept.slots;
    this.#newestMs = kept.newestMs;
  }

  /** The instant that counts when the machine's clock says `wallMs`. */
  at(wallMs: number): number {
    return Math.max(wallMs, this.#newestMs);
  }

  /** The slots of the last hour. */
  within(wallMs: number): readonly UsedSlot[] {
    const since = this.at(wallMs) - hour;
    return this.#slots.filter(({ atMs }) => atMs > since);
  }

  /** Takes a slot from this moment on, in memory; the same command keeps the one it has (DMN-019). @returns false beyond `allowance` */
  take(slot: UsedSlot, allowance: number): boolean {
    if (this.unreadable !== null) return false;
    const used = this.within(slot.atMs);
    if (used.some((one) => isSameHolder(one, slot))) return true;
    if (used.length >= Math.min(allowance, maxSlots)) return false;
    this.put(slot);
    return true;
  }

  /** What was taken, whatever the allowance. @returns false when it is there already, or too old to count */
  put(slot: UsedSlot): boolean {
    if (this.#slots.some((one) => isSameHolder(one, slot))) return false;
    this.#newestMs = this.at(slot.atMs);
    this.#slots = [...this.#slots, slot].filter(({ atMs }) => atMs > this.#newestMs - hour);
    return this.#slots.includes(slot);
  }

  /** Durable when it returns. */
  save(): Promise<void> {
    const done = this.#work.then(() =>
      this.unreadable === null ? this.#save({ slots: this.#slots, newestMs: this.#newestMs }) : undefined,
    );
    this.#work = done.catch(() => undefined);
    return done;
  }
}
