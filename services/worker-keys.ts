/**
 * The worker key of a process (SIGN-002 to SIGN-007): a P-256 key in memory that the signing root certifies for at most a day.
 * Its certificate is recorded before the key signs anything, in the transaction that proves this bundle is the newest one
 * (H-03, H-07): the drop of a root is computed from these rows, so a key that is not among them must not exist.
 *
 * A new key is made at 60 % of the old one's life, and at once when the bundle's signing root is another.
 */
import { ControlError, isControlError } from '../domain/errors.ts';
import type { RotationTimes } from '../domain/rotation/gates.ts';
import { type Database, instant } from '../drizzle/client.ts';
import { bundleDigest } from '../pki/bundle/index.ts';
import type { PkiBundle } from '../pki/bundle/types.ts';
import { createWorkerKey, type WorkerKey } from '../pki/envelope/worker-key.ts';
import { createSerial } from '../pki/x509/index.ts';
import { assertBundleIsNewest, assertDatabaseIsNewest } from './freshness.ts';

/** What signs commands: asked before every use, so that a switch of roots takes effect at the next signature. */
export interface WorkerKeyProvider {
  /** @throws STALE_BUNDLE when this process must not sign; INVALID_CONFIG when the bundle signs no commands */
  current(): Promise<WorkerKey>;
}

export interface WorkerKeyringOptions {
  readonly db: Database;
  readonly processId: string;
  /** The bundle this process runs now. */
  readonly bundle: () => PkiBundle;
  readonly times: Pick<RotationTimes, 'workerLifetimeMs'>;
  readonly now: () => number;
  /** How often the database is asked whether this bundle is still the newest; default 5 s. */
  readonly recheckMs?: number;
  /**
   * How long a process that finds itself behind waits for its own watch to bring the newer bundle, before it refuses; default
   * 10 s. A step of a rotation reaches every process within moments, and no command may fail for those. Once in vain, and until
   * another bundle comes, it refuses at once.
   */
  readonly catchUpMs?: number;
}

/** Part of a key's life after which the next one is made. */
const renewAfter = 0.6;

const record = {
  name: 'worker-cert-record',
  text: 'insert into worker_certs (serial, root_id, process_id, not_before, not_after, issued_at) values ($1, $2, $3, $4, $5, $6)',
};
/** H-13: certificates are backdated, so that a daemon whose clock is behind takes them. */
const backdateMs = 60_000;

interface Held {
  readonly key: WorkerKey;
  readonly bundle: PkiBundle;
  readonly renewAt: number;
  checkedAt: number;
}

function signingRootOf({ commandSigning }: PkiBundle): NonNullable<PkiBundle['commandSigning']> {
  if (commandSigning !== undefined) return commandSigning;
  throw new ControlError('INVALID_CONFIG', 'the key bundle has no command-signing root', { details: { reason: 'no-command-signing' } });
}

export function createWorkerKeyring(options: WorkerKeyringOptions): WorkerKeyProvider {
  const { db, processId, times, recheckMs = 5_000, catchUpMs = 10_000 } = options;
  let held: Held | undefined;
  let pending: Promise<Held> | undefined;
  /** The bundle that was waited for in vain. */
  let left: PkiBundle | undefined;

  const make = async (bundle: PkiBundle, now: number): Promise<Held> => {
    const root = signingRootOf(bundle);
    await assertDatabaseIsNewest(db);
    const serial = createSerial();
    await db.transaction(async (tx) => {
      await assertBundleIsNewest(tx, { generation: bundle.generation, digest: bundleDigest(bundle) });
      await tx.query(record, [serial, root.id, processId, instant(now - backdateMs), instant(now + times.workerLifetimeMs), instant(now)]);
    });
    const key = await createWorkerKey({
      root: { certificate: root.certificate.der, signer: root.signer() },
      now,
      lifetimeMs: times.workerLifetimeMs,
      serial,
    });
    return { key, bundle, renewAt: now + renewAfter * (key.notAfter - now), checkedAt: now };
  };

  /** The same root may sign on: the bundle is asked for only when it is another one, or after a while. */
  const recheck = async (last: Held, bundle: PkiBundle, now: number): Promise<Held> => {
    await assertDatabaseIsNewest(db);
    await db.transaction((tx) => assertBundleIsNewest(tx, { generation: bundle.generation, digest: bundleDigest(bundle) }));
    return { ...last, bundle, checkedAt: now };
  };

  const next = (last: Held | undefined, bundle: PkiBundle, now: number): Promise<Held> => {
    const sameRoot = last !== undefined && last.bundle.commandSigning?.id === bundle.commandSigning?.id;
    return sameRoot && now < last.renewAt ? recheck(last, bundle, now) : make(bundle, now);
  };

  const caughtUp = async (last: Held | undefined): Promise<Held> => {
    for (let waitedMs = 0; ; waitedMs += catchUpStepMs) {
      const bundle = options.bundle();
      try {
        return await next(last, bundle, options.now());
      } catch (error) {
        if (waitedMs >= catchUpMs) left = bundle;
        if (!isBehind(error) || left === bundle) throw error;
        await new Promise((resolve) => setTimeout(resolve, catchUpStepMs));
      }
    }
  };

  return {
    async current() {
      const bundle = options.bundle();
      const now = options.now();
      const good =
        held !== undefined && held.bundle === bundle && now < held.renewAt && now - held.checkedAt < recheckMs && now >= held.checkedAt;
      if (good && held !== undefined) return held.key;
      // Many callers, one key: all of them wait for the same record.
      pending ??= caughtUp(held).finally(() => {
        pending = undefined;
      });
      held = await pending;
      // The bundle may have been exchanged while the key was recorded.
      return held.bundle.commandSigning?.id === options.bundle().commandSigning?.id ? held.key : this.current();
    },
  };
}

const catchUpStepMs = 100;

/** The deployment runs a newer bundle than this process: that heals by itself, unlike a fork or a restored database. */
const isBehind = (error: unknown): boolean =>
  isControlError(error) && error.code === 'STALE_BUNDLE' && error.details['reason'] === 'bundle-replaced';

const lastEnd = { name: 'worker-cert-last', text: 'select max(not_after) as "notAfter" from worker_certs where root_id = $1' };

/** When the last worker key certified by a root ends; null when it certified none (H-03). */
export async function lastWorkerNotAfter(db: Database, rootId: string): Promise<number | null> {
  return (await db.query<{ notAfter: number | null }>(lastEnd, [rootId]))[0]?.notAfter ?? null;
}
