/**
 * Six renewals an hour per node and process, counted on authenticated attempts (WS-014, A-PRO-08): a stolen key cannot make
 * the certificate authority work without end, and a stranger cannot use up a node's share.
 */
import { hour } from '../domain/time.ts';
import { refusal } from './grpc/refusals.ts';

export const renewsPerHour = 6;

/** Nodes remembered; beyond it the one that renewed longest ago is forgotten. */
const mostNodes = 100_000;

export class RenewLimit {
  /** Insertion order is the order of last attempts. */
  readonly #attempts = new Map<string, readonly number[]>();

  /** Counts one attempt. @throws renew-rate-limit with the exact wait; the refused attempt is not counted */
  count(nodeId: string, now: number): void {
    const recent = (this.#attempts.get(nodeId) ?? []).filter((at) => now - at < hour);
    const oldest = recent[0];
    if (recent.length >= renewsPerHour && oldest !== undefined) {
      throw refusal('renew-rate-limit', {
        message: `node ${nodeId} renewed ${recent.length} times within an hour`,
        pushbackMs: oldest + hour - now,
      });
    }
    this.#attempts.delete(nodeId);
    this.#attempts.set(nodeId, [...recent, now]);
    if (this.#attempts.size <= mostNodes) return;
    for (const longestAgo of this.#attempts.keys()) {
      this.#attempts.delete(longestAgo);
      return;
    }
  }
}
