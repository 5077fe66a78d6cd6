/** The held approver set as identity.json keeps it. What does not read back is held as unreadable, never as none (DMN-034). */
import { z } from 'zod';
import type { TrustBundle } from '../../proto/index.ts';
import { type HeldQuorum, heldAsPublished } from './held-quorum.ts';

const count = z.number().int().nonnegative().max(0xffff_ffff);

const held = z.strictObject({
  epoch: z.number().int().nonnegative(),
  threshold: count,
  unbatchedPerHour: count,
  tiers: z.array(z.strictObject({ maxScopeSize: count, threshold: count })),
  keys: z.array(z.strictObject({ kid: z.string(), spki: z.base64() })),
});

const stored = z.union([held, z.strictObject({ unreadable: z.string() })]);

/**
 * @param json undefined where the file is older than the quorum
 * @param trustProblem why the bundle beside it cannot be read as a whole; null when it can
 */
export function heldQuorumFrom(json: unknown, trust: TrustBundle, trustProblem: string | null): HeldQuorum {
  if (trustProblem !== null) return { kind: 'unreadable', why: trustProblem };
  if (json === undefined) return heldAsPublished(trust);
  const parsed = stored.safeParse(json);
  if (!parsed.success) return { kind: 'unreadable', why: `quorum: ${parsed.error.issues[0]?.message ?? 'is no approver set'}` };
  if ('unreadable' in parsed.data) return { kind: 'unreadable', why: parsed.data.unreadable };
  const { epoch, threshold, unbatchedPerHour, tiers, keys } = parsed.data;
  return {
    kind: 'held',
    epoch,
    fields: {
      // Frozen, so that the keys are made ready for verifying once.
      approverKeys: Object.freeze(keys.map(({ kid, spki }) => Object.freeze({ kid, spki: new Uint8Array(Buffer.from(spki, 'base64')) }))),
      approverThreshold: threshold,
      tiers,
      unbatchedDestructivePerHour: unbatchedPerHour,
      // They proved the step that is behind us; the next one brings its own.
      approverSetSignatures: [],
      approverSetEpoch: BigInt(epoch),
    },
  };
}

export function storedQuorum(quorum: HeldQuorum): z.infer<typeof stored> {
  if (quorum.kind === 'unreadable') return { unreadable: quorum.why };
  const { epoch, fields } = quorum;
  return {
    epoch,
    threshold: fields.approverThreshold,
    unbatchedPerHour: fields.unbatchedDestructivePerHour,
    tiers: fields.tiers.map(({ maxScopeSize, threshold }) => ({ maxScopeSize, threshold })),
    keys: fields.approverKeys.map(({ kid, spki }) => ({ kid, spki: Buffer.from(spki).toString('base64') })),
  };
}
