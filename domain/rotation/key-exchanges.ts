/**
 * The keys, beside the command roots, whose exchange is a story of its own, and what each story is made of. One shape for all: add
 * the next one, wait until whoever must has it, let it sign, wait until nothing under the former one is valid, take that out.
 * What a key does not need is left out here, not written anew in a workflow.
 */
export const exchangedKeys = Object.freeze(['ca', 'gateway', 'ticket', 'workload'] as const);
export type ExchangedKey = (typeof exchangedKeys)[number];

/** Whose word a gate waits for. `nobody`: every process reads the keys at each use. */
export type Counted = 'bundle-holders' | 'gateways' | 'nobody';

export interface Exchange {
  readonly counts: Counted;
  /** The next one has to be told to sign; without, it is used as soon as it is there. */
  readonly promotes: boolean;
  /** The former one has to be taken out; without, nobody trusts it by name. */
  readonly retires: boolean;
  /** The step after which an abort is refused. */
  readonly returnsUntil: 'add' | 'promote' | 'retire';
}

export const exchanges: Readonly<Record<ExchangedKey, Exchange>> = Object.freeze({
  // Same key, new certificate: both stand side by side from the start, and chains with the new one are presented at once.
  ca: { counts: 'bundle-holders', promotes: false, retires: true, returnsUntil: 'add' },
  // The former key is overwritten; its certificate ends by itself.
  gateway: { counts: 'gateways', promotes: false, retires: false, returnsUntil: 'add' },
  // With the promotion the private half of the former key is gone.
  ticket: { counts: 'bundle-holders', promotes: true, retires: true, returnsUntil: 'promote' },
  // The former key can sign again until it is taken out (WID-019).
  workload: { counts: 'nobody', promotes: true, retires: true, returnsUntil: 'retire' },
});

/** The authorities of `ca`, as people say them. */
export const renewedCas = Object.freeze(['node', 'serving', 'internal'] as const);
export type RenewedCa = (typeof renewedCas)[number];

/** One key of the exchange, and when it may take its next step; null: it takes none by itself. */
export interface KeyStanding {
  /** A certificate's serial, or a key's RFC 7638 thumbprint. */
  readonly id: string;
  readonly state: 'waiting' | 'signing' | 'former';
  readonly opensAt: number | null;
}
