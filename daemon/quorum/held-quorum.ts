/**
 * The approver set a daemon enforces. It is not simply what its trust bundle says: a set that the current approvers did not sign is
 * refused while the rest of the bundle applies (DMN-024), so the set is kept beside the bundle.
 */
import { quorumOf } from '../../pki/quorum/index.ts';
import { approverSetDigest, noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import type { TrustBundle } from '../../proto/index.ts';

export type HeldQuorum =
  /** Without keys: no quorum. The epoch is kept through a removal (APPR-016). */
  | { readonly kind: 'held'; readonly fields: QuorumFields; readonly epoch: number }
  /** It held one and cannot tell which (DMN-034): destructive commands are refused until the machine joins again. */
  | { readonly kind: 'unreadable'; readonly why: string };

/** What a daemon holds whose identity file is older than the quorum: it took the fields as they came. */
export const heldAsPublished = (bundle: TrustBundle): HeldQuorum => ({
  kind: 'held',
  fields: quorumOf(bundle),
  epoch: bundle.approverKeys.length === 0 ? 0 : Number(bundle.approverSetEpoch),
});

/** The fields to judge an offered set by; none where they cannot be read. */
export const fieldsOf = (held: HeldQuorum): QuorumFields => (held.kind === 'held' ? held.fields : noQuorum);

export const epochOf = (held: HeldQuorum): number => (held.kind === 'held' ? held.epoch : 0);

/**
 * What a machine that joins by this daemon's word must be told of the approvers: the set that is enforced here, as the only first one it
 * takes. Without it every new boot would be a machine that knows no approvers, and take none from a JoinService that names none.
 *
 * @param pin this daemon's own, which speaks while it holds no set; a set that was taken away by its approvers leaves nothing to pin
 */
export function pinForOthers(held: HeldQuorum, pin: string | null): string | null {
  if (held.kind === 'unreadable') return pin;
  if (held.fields.approverKeys.length > 0) return approverSetDigest(held.fields);
  return held.epoch > 0 ? null : pin;
}
