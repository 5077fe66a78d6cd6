/**
 * Boot entries: each lets one boot of one run into the ramdisk, once. The token is a secret elsewhere; here is its digest, and the nonce that
 * tells this boot from every other (M34, M68). Using one is services/join/discovery.ts.
 */
import { createHash, randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { endIdentityOf, endRamdiskOf, lockMachine } from './moves.ts';
import { getRun, lockRun } from './stored-run.ts';
import type { BootEntry } from './types.ts';

export interface NewBootEntry {
  readonly runId: string;
  /** Counts the boots of the run from 1. */
  readonly attempt: number;
  /** The token itself, 32 bytes; only its digest is kept. */
  readonly token: Uint8Array;
  readonly expiresAt: number;
  readonly now: number;
}

export const entryIdOf = (runId: string, attempt: number): string => `${runId}-${attempt}`;
export const tokenRefOf = (runId: string, entryId: string): string => `secret://run/${runId}/boot/${entryId}`;

const entryColumns = `id as "entryId", run_id as "runId", attempt, encode(boot_nonce, 'hex') as "bootNonce", expires_at as "expiresAt",
  used_at as "usedAt", closed_at is not null as closed`;

export type BootEntryRow = Omit<BootEntry, 'tokenRef'>;
export const bootEntryOf = (row: BootEntryRow): BootEntry => ({ ...row, tokenRef: tokenRefOf(row.runId, row.entryId) });

/** Of an entry that nobody used and that is open, the token may be another one: the answer of the first call was lost, and its token with it. */
const upsert = {
  name: 'boot-entry-upsert',
  text: `insert into boot_entries as e (id, run_id, node_id, attempt, token_sha256, boot_nonce, created_at, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)
         on conflict (run_id, attempt) do update set token_sha256 = excluded.token_sha256, expires_at = excluded.expires_at
           where e.used_at is null and e.closed_at is null
         returning ${entryColumns}`,
};
/** The latest entry of the run that the value names. */
export const latestEntry = (value: number): string =>
  `select ${entryColumns} from boot_entries where run_id = $${value} order by attempt desc limit 1`;
const latest = { name: 'boot-entry-latest', text: latestEntry(1) };

/** The latest boot of a run. */
export async function findBootEntry(db: Executor, runId: string): Promise<BootEntry | null> {
  const [row] = await db.query<BootEntryRow>(latest, [runId]);
  return row === undefined ? null : bootEntryOf(row);
}

const supersede = {
  name: 'boot-entries-supersede',
  text: 'update boot_entries set closed_at = $3 where run_id = $1 and attempt < $2 and closed_at is null',
};

/**
 * Opens the entry of one boot and closes those of the boots before it. Repeated while nobody used it, its token is replaced.
 *
 * @throws NOT_FOUND; INVALID_STATE for a run that has ended, or an entry that was used or closed; INVALID_INPUT for a token that is too short
 */
export async function createBootEntry(db: Database, { runId, attempt, token, expiresAt, now }: NewBootEntry): Promise<BootEntry> {
  if (token.length < 32 || !(expiresAt > now))
    throw new ControlError('INVALID_INPUT', `a boot entry needs a token of 32 bytes or more and an end in the future`, {
      details: { reason: 'bad-boot-entry', tokenBytes: token.length },
    });
  const { machineId } = await getRun(db, runId);
  return db.transaction(async (tx) => {
    await lockMachine(tx, machineId);
    const run = await lockRun(tx, runId);
    if (run.state !== 'open')
      throw new ControlError('INVALID_STATE', `run ${runId} has ended: ${run.state}`, { details: { reason: 'run-ended', runId } });
    const digest = createHash('sha256').update(token).digest();
    const values = [entryIdOf(runId, attempt), runId, machineId, attempt, digest, randomBytes(16), instant(now), instant(expiresAt)];
    const [row] = await tx.query<BootEntryRow>(upsert, values);
    if (row === undefined)
      throw new ControlError('INVALID_STATE', `boot ${attempt} of run ${runId} was used or closed: the next boot has the next number`, {
        details: { reason: 'boot-entry-used', runId, attempt },
      });
    await tx.query(supersede, [runId, attempt, instant(now)]);
    return bootEntryOf(row);
  });
}

export interface IdentityEnd {
  readonly runId: string;
  readonly reason: 'retire' | 'reclaim';
  readonly now: number;
}

/**
 * Ends the identity that the machine has, before it is taken into maintenance: whatever boots its old disk once more speaks for nobody
 * (M28, REV-004, REV-005). The next join of the run begins another one.
 *
 * @throws NOT_FOUND; INVALID_STATE for a run that has ended
 */
export async function endRunIdentity(
  db: Database,
  { runId, reason, now }: IdentityEnd,
): Promise<{ readonly generation: number; readonly serials: readonly string[] }> {
  const { machineId } = await getRun(db, runId);
  return db.transaction(async (tx) => {
    const { node } = await lockMachine(tx, machineId);
    const run = await lockRun(tx, runId);
    if (run.state !== 'open')
      throw new ControlError('INVALID_STATE', `run ${runId} has ended: ${run.state}`, { details: { reason: 'run-ended', runId } });
    const certificates = await tx.query(liveCertificates, [machineId, instant(now)]);
    // Repeated, there is nothing left to end.
    if (certificates.length === 0) return { generation: node.identityGeneration, serials: [] };
    return endIdentityOf(tx, node, { state: 'active', reason: `machine ${reason}`, now });
  });
}

const liveCertificates = {
  name: 'metal-live-certificates',
  text: 'select serial from node_certs where node_id = $1 and revoked_at is null and not_after > $2 limit 1',
};

const closeOfRun = {
  name: 'boot-entries-close-run',
  text: 'update boot_entries set closed_at = $2 where run_id = $1 and closed_at is null returning id',
};

/** Nobody joins with the run's entries any more; a ramdisk that did speaks for nobody from now on. @throws NOT_FOUND */
export async function closeBoots(db: Database, runId: string, now: number): Promise<{ readonly closed: number }> {
  const { machineId } = await getRun(db, runId);
  return db.transaction(async (tx) => {
    const { node } = await lockMachine(tx, machineId);
    const run = await lockRun(tx, runId);
    const closed = (await tx.query(closeOfRun, [runId, instant(now)])).length;
    // A call that comes late must not end what the next run has begun.
    if (run.state === 'open') await endRamdiskOf(tx, node, { reason: `run ${runId} closed its boots`, now });
    return { closed };
  });
}
