/**
 * What a daemon has used up of its approvals, and the one way to use more. Taking is in memory and at once; making it durable comes
 * after the journal's record of the command (see claims.ts).
 */
import { CommandRejectReason } from '../../proto/index.ts';
import type { ClaimHolder, QuorumClaim } from './claims.ts';
import type { HeldQuorum } from './held-quorum.ts';
import type { QuorumRefusal } from './judge.ts';
import { UnbatchedSlots } from './unbatched-slots.ts';
import { UsedLeaves } from './used-leaves.ts';

export interface QuorumStores {
  readonly leaves: UsedLeaves;
  readonly slots: UnbatchedSlots;
}

/** For a daemon without files: what is taken is kept as long as the process. */
export const memoryQuorumStores = (): QuorumStores => ({
  leaves: new UsedLeaves({ entries: [], save: async () => undefined }),
  slots: new UnbatchedSlots({ kept: { slots: [], newestMs: 0 }, save: async () => undefined }),
});

/**
 * The second look, at admission itself (DMN-031): between the verdict and this, another delivery may have taken the same.
 *
 * @returns null when it is taken; otherwise why not
 */
export function takeClaim(
  { leaves, slots }: QuorumStores,
  { claim, holder, held }: { claim: QuorumClaim; holder: ClaimHolder; held: HeldQuorum },
): QuorumRefusal | null {
  const { commandId, digest } = holder;
  if (claim.kind === 'leaf') {
    if (leaves.take({ leaf: claim.leaf, commandId, digest, notAfterMs: claim.notAfterMs })) return null;
    return refused(CommandRejectReason.BATCH_UNAPPROVED, 'leaf-used', 'another command took this operation of its batch first');
  }
  const allowance = held.kind === 'held' ? held.fields.unbatchedDestructivePerHour : 0;
  if (slots.take({ commandId, digest, atMs: claim.atMs }, allowance)) return null;
  return refused(CommandRejectReason.UNBATCHED_LIMIT, 'unbatched-limit', 'other commands took the last of this hour first');
}

const leafOf = ({ leaf, notAfterMs }: QuorumClaim & { kind: 'leaf' }) => ({ leaf, notAfterMs });

const refused = (reject: QuorumRefusal['reject'], reason: string, detail: string): QuorumRefusal => ({
  kind: 'refuse',
  reject,
  reason,
  detail: `${reason}: ${detail}`,
});

/** Durable when it returns. */
export const keepClaim = ({ leaves, slots }: QuorumStores, { kind }: QuorumClaim): Promise<void> =>
  kind === 'leaf' ? leaves.save() : slots.save();

/**
 * Puts back what a crash kept out of the files: the journal accepted a command, and its claim was not written any more. Before the
 * first session, or a command of that session could take the leaf again.
 */
export async function restoreClaims(
  { leaves, slots }: QuorumStores,
  { accepted, floorMs }: { accepted: readonly (ClaimHolder & { readonly claim: QuorumClaim })[]; floorMs: number },
): Promise<number> {
  const isMissing = (claim: QuorumClaim & { kind: 'leaf' }): boolean =>
    claim.notAfterMs >= floorMs && leaves.find(claim.leaf) === undefined;
  let restored = 0;
  for (const { claim, commandId, digest } of accepted) {
    if (claim.kind === 'leaf' && isMissing(claim)) restored += leaves.take({ ...leafOf(claim), commandId, digest }) ? 1 : 0;
    if (claim.kind === 'slot') restored += slots.put({ commandId, digest, atMs: claim.atMs }) ? 1 : 0;
  }
  if (restored === 0) return 0;
  await leaves.save();
  await slots.save();
  return restored;
}
