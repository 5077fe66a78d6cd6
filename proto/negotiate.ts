/** Version negotiation of the agent protocol (SKEW-002, SKEW-011 to SKEW-014). */
export interface ProtocolRange {
  readonly min: number;
  readonly max: number;
}

/** The versions this code speaks. */
export const PROTOCOL_VERSION: ProtocolRange = Object.freeze({ min: 1, max: 1 });

export type Negotiated =
  | { readonly kind: 'agreed'; readonly version: number }
  /** The daemon is below us: it is welcomed at our minimum and may receive only `daemon.upgrade`. */
  | { readonly kind: 'upgrade-required'; readonly version: number }
  /** The daemon is above us: the stream is refused with FAILED_PRECONDITION. */
  | { readonly kind: 'gateway-too-old' };

/** Picks the highest version inside both ranges. */
export function negotiateProtocolVersion(ours: ProtocolRange, theirs: ProtocolRange): Negotiated {
  const version = Math.min(ours.max, theirs.max);
  if (version >= Math.max(ours.min, theirs.min)) return { kind: 'agreed', version };
  if (theirs.max < ours.min) return { kind: 'upgrade-required', version: ours.min };
  return { kind: 'gateway-too-old' };
}

/** True for whole numbers with 1 <= min <= max (SKEW-021). */
export function isProtocolRange({ min, max }: ProtocolRange): boolean {
  return Number.isInteger(min) && Number.isInteger(max) && min >= 1 && max >= min;
}
