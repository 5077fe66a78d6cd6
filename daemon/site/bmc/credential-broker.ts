/**
 * Whether a login at a controller may be tried (M39, M40). Accounts lock after a few refused logins, and then nobody reaches the machine:
 * so after the first refusal of a password nobody of this agent tries it again, until the secret has another version or a whole
 * hour has passed; and all passwords of one controller together get two refusals an hour, one below the lowest lockout threshold in use.
 *
 * What is counted is durable before the login is sent: an agent that dies in the middle of a login has used its try.
 */
import { ControlError } from '../../../domain/errors.ts';
import { hour, showInstant } from '../../../domain/time.ts';

/** A login that was refused, or whose answer never came. */
export interface Refusal {
  /** Tells one password from another without telling it. */
  readonly version: string;
  readonly atMs: number;
}

/** Address → refusals, the oldest first. */
export interface RefusalStore {
  load(address: string): Promise<readonly Refusal[]>;
  save(address: string, refusals: readonly Refusal[]): Promise<void>;
}

/** Two refusals an hour: of three, which no known controller goes below, one is left to a person. */
export const refusalsAnHour = 2;

/** null: it may be tried. Otherwise when it may be again. */
export function nextTryMs(refusals: readonly Refusal[], version: string, now: number): number | null {
  const recent = refusals.filter(({ atMs }) => now - atMs < hour);
  const own = recent.findLast((refusal) => refusal.version === version);
  if (own !== undefined) return own.atMs + hour;
  const first = recent.at(-refusalsAnHour);
  return first === undefined ? null : first.atMs + hour;
}

export function memoryRefusals(): RefusalStore {
  const kept = new Map<string, readonly Refusal[]>();
  return { load: async (address) => kept.get(address) ?? [], save: async (address, refusals) => void kept.set(address, refusals) };
}

export interface CredentialBroker {
  /** Uses up a try. @throws UNAUTHENTICATED (credential-stopped) where none is left */
  beforeLogin(version: string): Promise<void>;
  /** The password is right: whatever was refused before is forgotten. */
  loggedIn(): Promise<void>;
  /** The answer says nothing of the password: the try is given back. */
  notJudged(version: string): Promise<void>;
}

export function createCredentialBroker({
  address,
  store,
  now,
}: {
  readonly address: string;
  readonly store: RefusalStore;
  readonly now: () => number;
}): CredentialBroker {
  return {
    async beforeLogin(version) {
      const refusals = await store.load(address);
      const untilMs = nextTryMs(refusals, version, now());
      if (untilMs !== null) throw stopped(address, untilMs);
      await store.save(address, [...refusals.filter(({ atMs }) => now() - atMs < hour), { version, atMs: now() }]);
    },
    async loggedIn() {
      if ((await store.load(address)).length > 0) await store.save(address, []);
    },
    async notJudged(version) {
      const refusals = await store.load(address);
      const at = refusals.findLastIndex((refusal) => refusal.version === version);
      if (at !== -1) await store.save(address, refusals.toSpliced(at, 1));
    },
  };
}

const stopped = (address: string, untilMs: number): ControlError =>
  new ControlError(
    'UNAUTHENTICATED',
    `no login at ${address} is tried before ${showInstant(untilMs)}: its account refused this agent, and would be locked; correct the secret`,
    { details: { reason: 'credential-stopped', untilMs } },
  );
