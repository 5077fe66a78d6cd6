/**
 * Whether a login at a controller may be tried (M39, M40). Accounts lock after a few refused logins, and then nobody reaches the machine:
 * so after the first refusal of a password nobody of this agent tries it again, until the secret has another version or a whole
 * hour has passed; and all passwords of one controller together get two refusals an hour, one below the lowest lockout threshold in use.
 *
 * What is counted is durable before the login is sent: an agent that dies in the middle of a login has used its try.
 */
import { randomBytes } from 'node:crypto';
import { ControlError } from '../../../domain/errors.ts';
import { hour, showInstant } from '../../../domain/time.ts';
import type { LoginGuard } from '../redfish/authority.ts';

/** A login that was refused, or one whose answer never came: it may have been. */
export interface Refusal {
  /** Tells one password from another without telling it. */
  readonly version: string;
  readonly atMs: number;
  readonly isCertain: boolean;
}

/** Address → refusals, the oldest first. */
export interface RefusalStore {
  /** Of this agent: what makes versions out of passwords. */
  readonly key: Uint8Array;
  load(address: string): Promise<readonly Refusal[]>;
  save(address: string, refusals: readonly Refusal[]): Promise<void>;
}

/** Two an hour: of three, which no known controller goes below, one is left to a person. */
export const refusalsAnHour = 2;

const recently = (refusals: readonly Refusal[], now: number): Refusal[] => refusals.filter(({ atMs }) => now - atMs < hour);

/** null: it may be tried. Otherwise when it may be again. */
export function nextTryMs(refusals: readonly Refusal[], version: string, now: number): number | null {
  const recent = recently(refusals, now);
  const own = recent.findLast((refusal) => refusal.version === version && refusal.isCertain);
  if (own !== undefined) return own.atMs + hour;
  const first = recent.at(-refusalsAnHour);
  return first === undefined ? null : first.atMs + hour;
}

export function memoryRefusals(key: Uint8Array = randomBytes(32)): RefusalStore {
  const kept = new Map<string, readonly Refusal[]>();
  return { key, load: async (address) => kept.get(address) ?? [], save: async (address, refusals) => void kept.set(address, refusals) };
}

export function createCredentialBroker({
  address,
  store,
  now,
}: {
  readonly address: string;
  readonly store: RefusalStore;
  readonly now: () => number;
}): LoginGuard {
  async function withoutLast(version: string): Promise<readonly Refusal[]> {
    const refusals = await store.load(address);
    const at = refusals.findLastIndex((refusal) => refusal.version === version && !refusal.isCertain);
    return at === -1 ? refusals : refusals.toSpliced(at, 1);
  }
  return {
    async beforeLogin(version) {
      const refusals = await store.load(address);
      const untilMs = nextTryMs(refusals, version, now());
      if (untilMs !== null) throw stopped(address, untilMs);
      await store.save(address, [...recently(refusals, now()), { version, atMs: now(), isCertain: false }]);
    },
    async loggedIn() {
      if ((await store.load(address)).length > 0) await store.save(address, []);
    },
    async refused(version) {
      const refusals = await withoutLast(version);
      await store.save(address, [...recently(refusals, now()), { version, atMs: now(), isCertain: true }]);
    },
    async notJudged(version) {
      await store.save(address, await withoutLast(version));
    },
  };
}

const stopped = (address: string, untilMs: number): ControlError =>
  new ControlError(
    'UNAUTHENTICATED',
    `no login at ${address} is tried before ${showInstant(untilMs)}: its account refused this agent, and would be locked; correct the secret`,
    { details: { reason: 'credential-stopped', untilMs } },
  );
