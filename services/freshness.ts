/**
 * H-07: a process that holds an older key bundle than the deployment has run, or whose fleet is ahead of the database, must
 * not sign. The database remembers the newest generation any process ran; the fleet remembers the newest version it applied;
 * neither a restored file nor a restored database can lower both.
 *
 * A single node that claims a version nobody published must not stop a deployment from signing: it takes three, or all that
 * are connected where there are fewer. Who is connected is asked by the database's clock, which presence is written by: a host
 * whose own clock is off would see no fleet, and sign.
 */
import { ControlError } from '../domain/errors.ts';
import { connectedWithinMs } from '../domain/session/presence.ts';
import type { Database, Executor } from '../drizzle/client.ts';

/** What a process runs. */
export interface BundleIdentity {
  readonly generation: number;
  /** Over every public field (bundleDigest). */
  readonly digest: string;
}

const raise = {
  name: 'freshness-raise',
  text: `insert into bundle_freshness as f (id, generation, digest, recorded_at) values (1, $1, $2, clock_timestamp())
         on conflict (id) do update set generation = excluded.generation, digest = excluded.digest, recorded_at = excluded.recorded_at
         where excluded.generation > f.generation`,
};
const read = { name: 'freshness-read', text: 'select generation, digest from bundle_freshness where id = 1 for share' };

/**
 * Records the bundle this process runs and refuses an older one, or another one of the same generation. The row stays locked
 * for the transaction, so no newer bundle is recorded between this check and the write that relies on it.
 *
 * @throws STALE_BUNDLE with reason bundle-replaced or bundle-forked
 */
export async function assertBundleIsNewest(tx: Executor, bundle: BundleIdentity): Promise<void> {
  await tx.query(raise, [bundle.generation, bundle.digest]);
  const [newest] = await tx.query<BundleIdentity>(read);
  if (newest === undefined || newest.generation < bundle.generation) throw new ControlError('INTERNAL', 'the freshness row did not rise');
  if (newest.generation > bundle.generation) {
    throw new ControlError(
      'STALE_BUNDLE',
      `the key bundle at hand is generation ${bundle.generation}, the deployment runs ${newest.generation}: restore the current one`,
      { details: { reason: 'bundle-replaced', generation: bundle.generation, newest: newest.generation } },
    );
  }
  if (newest.digest !== bundle.digest) {
    throw new ControlError(
      'STALE_BUNDLE',
      `two different key bundles call themselves generation ${bundle.generation}: keep one and restore it everywhere`,
      {
        details: { reason: 'bundle-forked', generation: bundle.generation },
      },
    );
  }
}

/** So many nodes must report a version above the recorded one before it counts, or every connected one. */
export const witnesses = 3;

const connected = `last_seen_at >= now() - interval '${connectedWithinMs} ms'`;
const ahead = {
  name: 'freshness-fleet',
  text: `select t.version as recorded,
           (select count(*) from node_presence where ${connected}) as connected,
           (select count(*) from node_presence where trust_version > t.version and ${connected}) as ahead,
           (select max(trust_version) from node_presence where trust_version > t.version and ${connected}) as highest
         from (select coalesce(max(version), 0) as version from trust_bundle_state) t`,
};

export interface FleetAhead {
  readonly recorded: number;
  readonly connected: number;
  /** Connected nodes that hold a version the database never published. */
  readonly ahead: number;
  readonly highest: number | null;
}

/** Pure: is what the fleet reports proof that the database is older than the fleet? */
export const isFleetAhead = (facts: FleetAhead): boolean => facts.ahead > 0 && facts.ahead >= Math.min(witnesses, facts.connected);

export async function readFleetAhead(db: Executor): Promise<FleetAhead> {
  return (await db.query<FleetAhead>(ahead))[0] ?? { recorded: 0, connected: 0, ahead: 0, highest: null };
}

/** @throws STALE_BUNDLE with reason database-behind-fleet */
export async function assertDatabaseIsNewest(db: Executor): Promise<void> {
  const facts = await readFleetAhead(db);
  if (!isFleetAhead(facts)) return;
  throw new ControlError(
    'STALE_BUNDLE',
    `${facts.ahead} of ${facts.connected} connected node(s) hold trust version ${facts.highest}, the database has published only ${facts.recorded}: it was restored from an older copy. Restore the newest copy, or publish above ${facts.highest} with BETTER_COMPUTE_TRUST_VERSION`,
    { details: { reason: 'database-behind-fleet', recorded: facts.recorded, highest: facts.highest } },
  );
}

/** Both checks: before anything is signed, and for doctor. */
export async function assertFresh(db: Database, bundle: BundleIdentity): Promise<void> {
  await assertDatabaseIsNewest(db);
  await db.transaction((tx) => assertBundleIsNewest(tx, bundle));
}
