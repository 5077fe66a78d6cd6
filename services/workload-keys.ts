/**
 * The deployment's workload issuer: one ring of keys in the database, shared by every replica of the api (WID-015, WID-017).
 *
 * Invariants
 *   - The ring is read at every use, so a key that one process added is published by all at once, and nobody signs with a key that
 *     another has replaced for longer than one request takes.
 *   - A change is one transaction under the row's lock, with its event in the audit trail.
 *   - All times are the database's: keys and tokens of several hosts follow one clock.
 */
import { ControlError } from '../domain/errors.ts';
import { second } from '../domain/time.ts';
import { promoteOpensAt, retireOpensAt, type WorkloadKeyState } from '../domain/workload/keys.ts';
import type { Database, Executor } from '../drizzle/client.ts';
import { instant } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import { createWorkloadIssuer, openWorkloadKeys, sealWorkloadKeys, type WorkloadIssuer } from '../pki/workload/index.ts';
import { appendAudit } from './audit.ts';

export interface WorkloadSettings {
  /** https on port 443 (WID-010). */
  readonly issuer: string;
  readonly defaultAudience: string;
  readonly audiences: readonly string[];
  /** The deployment's; it seals the keys. */
  readonly secret: string;
}

export interface WorkloadKeyView {
  readonly kid: string;
  readonly state: WorkloadKeyState['state'];
  readonly addedAt: number;
  readonly stoppedAt: number | null;
  /** null for the key that signs. */
  readonly promoteOpensAt: number | null;
  /** null while it signs. */
  readonly retireOpensAt: number | null;
}

export interface WorkloadKeyStep {
  readonly kid: string;
  /** False when the step was done before. */
  readonly changed: boolean;
}

interface StoredRing {
  readonly revision: number;
  readonly sealed: Uint8Array;
}

const read = { name: 'workload-ring', text: 'select revision, sealed_keys as sealed from workload_issuers where issuer = $1' };
const lock = { name: 'workload-ring-lock', text: `${read.text} for update` };
const insert = {
  name: 'workload-ring-insert',
  text: `insert into workload_issuers (issuer, revision, sealed_keys, created_at, updated_at) values ($1, $2, $3, $4, $4)
         on conflict (issuer) do nothing`,
};
const update = {
  name: 'workload-ring-update',
  text: 'update workload_issuers set revision = $2, sealed_keys = $3, updated_at = $4 where issuer = $1',
};

function issuerOf(settings: WorkloadSettings, { revision, sealed }: StoredRing, now: number): WorkloadIssuer {
  const { issuer, defaultAudience, audiences, secret } = settings;
  const keys = openWorkloadKeys(sealed, { secret, issuer, revision });
  return createWorkloadIssuer({ issuer, defaultAudience, audiences, keys, now: () => now });
}

/**
 * The issuer as it is now. Made for one use: its clock stands.
 *
 * @throws INVALID_STATE before ensureWorkloadKeys; INVALID_CONFIG (workload-seal)
 */
export async function readWorkloadIssuer(db: Executor, settings: WorkloadSettings): Promise<WorkloadIssuer> {
  const [row] = await db.query<StoredRing>(read, [settings.issuer]);
  if (row === undefined) throw missing(settings);
  return issuerOf(settings, row, await databaseNow(db));
}

const missing = ({ issuer }: WorkloadSettings): ControlError =>
  new ControlError('INVALID_STATE', `the workload issuer ${issuer} has no keys yet: an api that is configured with it makes them`, {
    details: { reason: 'no-workload-keys' },
  });

/**
 * Makes the first key of an issuer that has none; of many processes that start at once, one does.
 *
 * @returns true when this call made it
 * @throws MISSING_ENV for a secret under 32 characters; INVALID_CONFIG for settings that are none, or keys that do not open
 */
export async function ensureWorkloadKeys(db: Database, settings: WorkloadSettings): Promise<boolean> {
  return db.transaction(async (tx) => {
    const [known] = await tx.query<StoredRing>(read, [settings.issuer]);
    const now = await databaseNow(tx);
    if (known !== undefined) return issuerOf(settings, known, now).jwks().keys.length === 0;
    const { issuer, defaultAudience, audiences, secret } = settings;
    const fresh = createWorkloadIssuer({ issuer, defaultAudience, audiences, now: () => now });
    const sealed = sealWorkloadKeys(fresh.exportKeys(), { secret, issuer, revision: 1 });
    await tx.query(insert, [issuer, 1, sealed, instant(now)]);
    const [row] = await tx.query<StoredRing>(read, [issuer]);
    if (row === undefined || !Buffer.from(row.sealed).equals(Buffer.from(sealed))) return false;
    const kid = [...fresh.listKeys().keys()][0] as string;
    await record(tx, { kid, action: 'create', actor: 'system', details: { issuer } }, now);
    return true;
  });
}

/** The keys without their private halves. */
export async function listWorkloadKeys(db: Executor, settings: WorkloadSettings): Promise<WorkloadKeyView[]> {
  return viewsOf(await readWorkloadIssuer(db, settings));
}

/** What may be shown of an issuer's keys. */
export const viewsOf = (issuer: WorkloadIssuer): WorkloadKeyView[] =>
  [...issuer.listKeys()].map(([kid, key]) => ({
    kid,
    state: key.state,
    addedAt: key.addedAt,
    stoppedAt: key.state === 'former' ? key.stoppedAt : null,
    promoteOpensAt: key.state === 'signing' ? null : promoteOpensAt(key),
    retireOpensAt: retireOpensAt(key),
  }));

/** Publishes a new key (WID-018); one that waits already is the answer to a repeated order. @throws INVALID_STATE when there are too many */
export const addWorkloadKey = (db: Database, settings: WorkloadSettings, { actor }: { readonly actor: string }): Promise<WorkloadKeyStep> =>
  change(db, settings, {
    action: 'add',
    actor,
    step(issuer) {
      const waiting = viewsOf(issuer).find(({ state }) => state === 'waiting');
      return waiting === undefined ? { kid: issuer.addKey().kid, changed: true } : { kid: waiting.kid, changed: false };
    },
  });

/** Signs with a published key (WID-019). @throws NOT_FOUND; INVALID_STATE (promote-too-early) with the time at which it opens */
export const promoteWorkloadKey = (db: Database, settings: WorkloadSettings, { kid, actor }: WorkloadKeyOrder): Promise<WorkloadKeyStep> =>
  change(db, settings, {
    action: 'promote',
    actor,
    step(issuer) {
      const changed = issuer.listKeys().get(kid)?.state !== 'signing';
      issuer.promote(kid);
      return { kid, changed };
    },
  });

/** Takes a key out of the set (WID-020); one that was taken out before is gone. @throws NOT_FOUND; INVALID_STATE (key-signs, retire-too-early) */
export const retireWorkloadKey = (db: Database, settings: WorkloadSettings, { kid, actor }: WorkloadKeyOrder): Promise<WorkloadKeyStep> =>
  change(db, settings, {
    action: 'retire',
    actor,
    async step(issuer, tx) {
      if (!issuer.listKeys().has(kid) && (await wasRetired(tx, kid))) return { kid, changed: false };
      issuer.retire(kid);
      return { kid, changed: true };
    },
  });

export interface WorkloadKeyOrder {
  readonly kid: string;
  readonly actor: string;
}

type Action = 'create' | 'add' | 'promote' | 'retire';

interface Change {
  readonly action: Action;
  readonly actor: string;
  step(issuer: WorkloadIssuer, tx: Executor): WorkloadKeyStep | Promise<WorkloadKeyStep>;
}

/**
 * A key is published by the commit, not by the clock that was read before it. So a new one is counted from an instant that the commit
 * cannot be later than: the five statements in between are given five seconds each, or nothing is written.
 */
const publishedWithinMs = 30 * second;
const hurry = { name: 'workload-ring-hurry', text: "select set_config('statement_timeout', '5000', true)" };

function change(db: Database, settings: WorkloadSettings, { action, actor, step }: Change): Promise<WorkloadKeyStep> {
  return db.transaction(async (tx) => {
    const [row] = await tx.query<StoredRing>(lock, [settings.issuer]);
    if (row === undefined) throw missing(settings);
    await tx.query(hurry);
    const now = await databaseNow(tx);
    const issuer = issuerOf(settings, row, action === 'add' ? now + publishedWithinMs : now);
    const done = await step(issuer, tx);
    if (!done.changed) return done;
    const revision = row.revision + 1;
    const sealed = sealWorkloadKeys(issuer.exportKeys(), { secret: settings.secret, issuer: settings.issuer, revision });
    await tx.query(update, [settings.issuer, revision, sealed, instant(now)]);
    await record(tx, { kid: done.kid, action, actor, details: { issuer: settings.issuer, revision } }, now);
    return done;
  });
}

const auditKey = (kid: string, action: Action): string => `workload-key/${kid}/${action}`;
const findRetired = { name: 'workload-key-retired', text: 'select 1 from audit_events where key = $1' };

const wasRetired = async (tx: Executor, kid: string): Promise<boolean> =>
  (await tx.query(findRetired, [auditKey(kid, 'retire')])).length > 0;

/** A key is made and retired once; it may be promoted again after a change of mind. */
async function record(
  tx: Executor,
  {
    kid,
    action,
    actor,
    details,
  }: { readonly kid: string; readonly action: Action; readonly actor: string; readonly details: { issuer: string; revision?: number } },
  now: number,
): Promise<void> {
  const key = action === 'promote' ? `${auditKey(kid, action)}/${details.revision}` : auditKey(kid, action);
  await appendAudit(tx, { key, actor, action: `workload-key.${action}`, subject: kid, details }, now);
}
