/**
 * The version of the trust bundle follows its content (TRUST-001, TRUST-009 to TRUST-018). Pure: the caller holds the
 * row lock on the recorded state, calls this, and writes what it says.
 *
 * What it rules out: two contents under one version; a replaced bundle that comes back as newer because a stale replica
 * restarted (TRUST-012 to TRUST-016); a version below the floor (TRUST-018). Only an explicit floor above the recorded
 * version publishes a replaced bundle again (TRUST-017): that is how an abort takes the added root back (H-04).
 */
export interface RecordedTrust {
  readonly version: number;
  /** Lower-case hex of SHA-256 over the canonical content. */
  readonly digest: string;
}

export interface TrustCandidate {
  readonly digest: string;
  /** max of the bundle's trustVersion and the configured option; 0 for none. */
  readonly floor: number;
  /** Only what an operator asked for by name: the configured option, or the floor an abort recorded; 0 for none. */
  readonly explicitFloor: number;
}

export type TrustDecision =
  | { readonly kind: 'unchanged'; readonly version: number }
  | { readonly kind: 'publish'; readonly version: number }
  /** This process holds content that was replaced: it serves it at its old version and changes nothing. */
  | { readonly kind: 'stale'; readonly version: number; readonly currentVersion: number };

/**
 * @param recorded what is published now; null before the first publication
 * @param earlier the highest version at which `candidate.digest` was published before; null if never
 */
export function settleTrustVersion(recorded: RecordedTrust | null, earlier: number | null, candidate: TrustCandidate): TrustDecision {
  const floor = Math.max(candidate.floor, candidate.explicitFloor);
  if (recorded === null) return { kind: 'publish', version: Math.max(1, floor) };
  if (recorded.digest === candidate.digest) {
    return floor > recorded.version ? { kind: 'publish', version: floor } : { kind: 'unchanged', version: recorded.version };
  }
  if (earlier !== null && candidate.explicitFloor <= recorded.version) {
    return { kind: 'stale', version: earlier, currentVersion: recorded.version };
  }
  return { kind: 'publish', version: Math.max(recorded.version + 1, floor) };
}
