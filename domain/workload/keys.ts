/**
 * The life of a workload issuer's keys: add → promote → retire (WID-017 to WID-020). Pure functions from one ring to the next;
 * whoever holds the keys calls them and writes the answer back.
 *
 * Invariants
 *   - Exactly one key of a ring that is not empty signs.
 *   - A key signs only after every verifier that obeys the cache rule of the published set has read it (C39): a verifier that read
 *     the set a moment before the key was added may rely on that copy for `jwksMaxAgeMs`.
 *   - A key leaves the set only when nothing it signed is valid any more.
 *   - A repeated add or promote changes nothing and answers the ring it was given.
 *
 * What this file does not do: keys, tokens, storage. Times are one clock's, the caller's.
 */
import { ControlError } from '../errors.ts';
import { minute, second, showInstant } from '../time.ts';

export const workloadTimes = Object.freeze({
  /** How long a verifier may keep the published set (WID-013). */
  jwksMaxAgeMs: 5 * minute,
  /** Bounds of a token's life (WID-008). */
  shortestTokenMs: minute,
  longestTokenMs: 15 * minute,
  /** Beyond the end of the last token: verifiers allow for skew (WID-020). */
  retireSlackMs: minute,
});

/** `waiting`: published, never signed. `signing`: the one. `former`: published, signs no more. */
export type WorkloadKeyState =
  | { readonly state: 'waiting'; readonly addedAt: number }
  | { readonly state: 'signing'; readonly addedAt: number }
  | { readonly state: 'former'; readonly addedAt: number; readonly stoppedAt: number };

/** RFC 7638 thumbprint → state, in the order in which the keys were added. */
export type WorkloadRing = ReadonlyMap<string, WorkloadKeyState>;

export interface WorkloadRingStep {
  readonly ring: WorkloadRing;
  readonly changed: boolean;
}

/** More would make every verifier read and try more; a ring in use has two. */
export const maxWorkloadKeys = 8;

const refuse = (message: string, details: Record<string, unknown>): never => {
  throw new ControlError('INVALID_STATE', message, { details });
};

function getKey(ring: WorkloadRing, kid: string): WorkloadKeyState {
  const key = ring.get(kid);
  if (key !== undefined) return key;
  throw new ControlError('NOT_FOUND', `the workload issuer has no key ${showKid(kid)}`, { details: { reason: 'unknown-key' } });
}

/** Never more of it than a thumbprint has. */
const showKid = (kid: string): string => JSON.stringify(kid.slice(0, 64));

/**
 * Publishes a key while the one before it still signs (WID-018). The first key of a ring signs at once: nobody trusts the issuer yet.
 *
 * @throws INVALID_STATE when the ring is full
 */
export function addWorkloadKey(ring: WorkloadRing, { kid, now }: { kid: string; now: number }): WorkloadRingStep {
  if (ring.has(kid)) return { ring, changed: false };
  if (ring.size >= maxWorkloadKeys)
    return refuse(`the workload issuer publishes ${ring.size} keys already, at most ${maxWorkloadKeys}: retire one first`, {
      reason: 'ring-full',
    });
  const state = ring.size === 0 ? 'signing' : 'waiting';
  return { ring: new Map([...ring, [kid, { state, addedAt: now }]]), changed: true };
}

/** The earliest instant at which a key may sign. A key that signed before is in every verifier's set already. */
export const promoteOpensAt = (key: WorkloadKeyState): number =>
  key.state === 'waiting' ? key.addedAt + workloadTimes.jwksMaxAgeMs : key.addedAt;

/**
 * Lets a published key sign; the one that signed becomes a former one (WID-019).
 *
 * @throws NOT_FOUND for a key that is not in the ring; INVALID_STATE (promote-too-early) with the instant at which it opens
 */
export function promoteWorkloadKey(ring: WorkloadRing, { kid, now }: { kid: string; now: number }): WorkloadRingStep {
  const key = getKey(ring, kid);
  if (key.state === 'signing') return { ring, changed: false };
  const opensAt = promoteOpensAt(key);
  if (now < opensAt)
    return refuse(`not promoting key ${kid} before ${showInstant(opensAt)}: a verifier may still rely on a key set without it`, {
      reason: 'promote-too-early',
      opensAt,
    });
  const next = [...ring].map(([id, { state, addedAt, ...rest }]): [string, WorkloadKeyState] => {
    if (id === kid) return [id, { state: 'signing', addedAt }];
    if (state === 'signing') return [id, { state: 'former', addedAt, stoppedAt: now }];
    return [id, { state, addedAt, ...rest } as WorkloadKeyState];
  });
  return { ring: new Map(next), changed: true };
}

/** The earliest instant at which a key may leave; null while it signs. What never signed may leave at any time. */
export function retireOpensAt(key: WorkloadKeyState): number | null {
  switch (key.state) {
    case 'waiting':
      return key.addedAt;
    case 'signing':
      return null;
    case 'former':
      return key.stoppedAt + workloadTimes.longestTokenMs + workloadTimes.retireSlackMs;
  }
}

/**
 * Takes a key out of the set (WID-020).
 *
 * @throws NOT_FOUND for a key that is not in the ring; INVALID_STATE: key-signs, or retire-too-early with the instant at which it opens
 */
export function retireWorkloadKey(ring: WorkloadRing, { kid, now }: { kid: string; now: number }): WorkloadRingStep {
  const opensAt = retireOpensAt(getKey(ring, kid));
  if (opensAt === null) return refuse(`key ${kid} signs: promote another one first`, { reason: 'key-signs' });
  if (now < opensAt)
    return refuse(`not retiring key ${kid} before ${showInstant(opensAt)}: a token it signed may still be valid`, {
      reason: 'retire-too-early',
      opensAt,
    });
  return { ring: new Map([...ring].filter(([id]) => id !== kid)), changed: true };
}

/** The key that signs. @throws INVALID_STATE when the ring is empty */
export function signingKeyOf(ring: WorkloadRing): string {
  for (const [kid, { state }] of ring) if (state === 'signing') return kid;
  return refuse('the workload issuer has no key that signs', { reason: 'no-signing-key' });
}

/** @throws INVALID_INPUT unless exactly one key of a ring that is not empty signs, no time is odd, and the ring is not over-full */
export function assertWorkloadRing(ring: WorkloadRing): void {
  const states = [...ring.values()];
  const signing = states.filter(({ state }) => state === 'signing').length;
  if (ring.size > 0 && signing !== 1) throw badRing(`${signing} of its keys sign, not 1`);
  if (ring.size > maxWorkloadKeys) throw badRing(`it has ${ring.size} keys, at most ${maxWorkloadKeys}`);
  for (const [kid, key] of ring) {
    const times = key.state === 'former' ? [key.addedAt, key.stoppedAt] : [key.addedAt];
    if (!times.every((time) => Number.isSafeInteger(time) && time >= 0)) throw badRing(`key ${showKid(kid)} has a time that is none`);
  }
}

const badRing = (what: string): ControlError =>
  new ControlError('INVALID_INPUT', `the keys of the workload issuer do not fit together: ${what}`, { details: { reason: 'key-ring' } });

/**
 * How long a token lives, in whole seconds (WID-008).
 *
 * @throws INVALID_INPUT outside of 60 to 900 s
 */
export function tokenSeconds(wanted: number): number {
  const [least, most] = [workloadTimes.shortestTokenMs / second, workloadTimes.longestTokenMs / second];
  if (Number.isInteger(wanted) && wanted >= least && wanted <= most) return wanted;
  throw new ControlError('INVALID_INPUT', `a workload token lives ${least} to ${most} s, not ${wanted}`, {
    details: { reason: 'token-lifetime' },
  });
}
