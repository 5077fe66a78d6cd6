/**
 * The ends of a batch (BAT-058 to BAT-061, BAT-063): cancelled by hand, rejected by an approver, its window over, its tenant gone. The
 * state moves first, in one transaction; then the commands that no machine has taken are cancelled, page by page, and whoever comes
 * later finishes what a crash left. What machines have taken runs to its end and is recorded.
 */
import { batchStateAt } from '../../domain/batch/states.ts';
import { commandStates } from '../../domain/commands/states.ts';
import { ControlError } from '../../domain/errors.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { endBatch, lockBatches, type StoredBatch } from '../../drizzle/queries/batches.ts';
import { queueCompletions } from '../../drizzle/queries/dispatch.ts';
import { appendAudit } from '../audit.ts';
import { unknownBatch } from './refusals.ts';

export interface EndedBatch {
  /** false: it had ended this way before. */
  readonly changed: boolean;
  /** Commands that were cancelled now. */
  readonly cancelled: number;
}

export interface CancelOptions {
  readonly batchId: string;
  readonly actor: string;
  readonly reason: string;
  /** An approver said no; the batch is cancelled and says so. */
  readonly isRejection?: boolean;
}

/** @throws NOT_FOUND; INVALID_STATE for one whose window is over */
export async function cancelBatch(db: Database, options: CancelOptions, { now }: { now: number }): Promise<EndedBatch> {
  const { batchId, actor, isRejection = false } = options;
  const reason = closeReason(options.reason, isRejection);
  const changed = await db.transaction(async (tx) => {
    const [batch] = await lockBatches(tx, [batchId]);
    if (batch === undefined) throw unknownBatch(batchId);
    const state = batchStateAt(batch, now);
    if (state === 'expired')
      throw new ControlError('INVALID_STATE', `batch ${batchId} has expired: nothing is left to cancel`, {
        details: { reason: 'not-pending', state },
      });
    return moveToEnd(tx, batch, { state: 'cancelled', by: actor, reason, now });
  });
  return {
    changed,
    cancelled: await finishEnd(db, batchId, { reason: `batch ${isRejection ? 'rejected' : 'cancelled'} by ${actor}`, now }),
  };
}

/** What a batch was ended for begins with "rejected" when an approver said no, and never otherwise. */
function closeReason(reason: string, isRejection: boolean): string {
  if (isRejection) return `rejected: ${reason}`;
  return reason.startsWith('rejected') ? `cancelled: ${reason}` : reason;
}

interface Move {
  readonly state: 'expired' | 'cancelled';
  readonly by: string;
  readonly reason: string;
  readonly now: number;
}

async function moveToEnd(tx: Executor, { id, tenantId }: StoredBatch, { state, by, reason, now }: Move): Promise<boolean> {
  if (!(await endBatch(tx, { batchId: id, state, by, reason }))) return false;
  const action = `command.batch.${state}`;
  await appendAudit(tx, { key: `batch/${id}/${state}`, actor: by, action, subject: id, details: { reason }, tenant: tenantId }, now);
  return true;
}

const page = 2_000;

const sweep = {
  name: 'batches-sweep',
  text: `with left_over as (select c.id from node_commands c where c.batch_id = $1 and c.state = ${commandStates.open} order by c.id limit $4
                            for no key update of c)
         update node_commands c set state = ${commandStates.cancelled}, reject_reason = $2, finished_at = $3
         from left_over l where c.id = l.id returning c.id`,
};
const close = {
  name: 'batches-close',
  text: `update command_batches b set closed_at = $2 where id = $1 and closed_at is null and (state in ('expired', 'cancelled')
           or not exists (select from node_commands c where c.batch_id = b.id and c.state < 2)) returning id`,
};

/** Cancels what no machine has taken; a batch without such commands is closed. Only for one that has ended. */
async function finishEnd(db: Database, batchId: string, { reason, now }: { reason: string; now: number }): Promise<number> {
  let cancelled = 0;
  for (;;) {
    const ids = await db.transaction(async (tx) => {
      const rows = await tx.query<{ id: string }>(sweep, [batchId, reason, instant(now), page]);
      const ended = rows.map(({ id }) => id);
      await queueCompletions(tx, ended, now);
      return ended;
    });
    cancelled += ids.length;
    if (ids.length < page) break;
  }
  await db.query(close, [batchId, instant(now)]);
  return cancelled;
}

/** Its commands have all ended: reconcilers look at it no more. @returns false while some have not, or it was closed before */
export const closeBatch = async (db: Database, batchId: string, { now }: { now: number }): Promise<boolean> =>
  (await db.query(close, [batchId, instant(now)])).length > 0;

const due = {
  name: 'batches-due',
  text: `select id from command_batches where closed_at is null and (not_after < $1 or state in ('expired', 'cancelled'))
         order by not_after limit $2`,
};

export interface ExpiredBatches {
  /** Ended now, because their window is over. */
  readonly expired: readonly string[];
  readonly cancelledCommands: number;
}

/** The reconciler's step (BAT-059, BAT-060, A-PKI-47): takes no input but the clock, and may be repeated by anyone. */
export async function expireBatches(db: Database, { now, limit = 100 }: { now: number; limit?: number }): Promise<ExpiredBatches> {
  const rows = await db.query<{ id: string }>(due, [instant(now), limit]);
  const expired: string[] = [];
  let cancelledCommands = 0;
  for (const { id } of rows) {
    const moved = await db.transaction(async (tx) => {
      const [batch] = await lockBatches(tx, [id]);
      if (batch === undefined || batchStateAt(batch, now) !== 'expired') return false;
      return moveToEnd(tx, batch, { state: 'expired', by: 'control-plane', reason: 'its window is over', now });
    });
    if (moved) expired.push(id);
    cancelledCommands += await finishEnd(db, id, { reason: 'the window of its batch is over', now });
  }
  return { expired, cancelledCommands };
}

const openOf = {
  name: 'batches-open-of',
  text: `select id from command_batches where closed_at is null and state in ('pending', 'approved') and ($1::text is null or tenant_id = $1)
           and id > $2 order by id limit $3`,
};

/** Pending, or approved and not done: each should have its workflow. In the order of ids. */
export const openBatches = async (
  db: Executor,
  { tenantId = null, after, limit }: { tenantId?: string | null; after: string; limit: number },
): Promise<string[]> => (await db.query<{ id: string }>(openOf, [tenantId, after, limit])).map(({ id }) => id);

/** Cancels every open batch of a tenant (BAT-061). */
export async function endOpenBatches(
  db: Database,
  { tenantId, by, reason, now }: { tenantId: string; by: string; reason: string; now: number },
): Promise<string[]> {
  const ended: string[] = [];
  for (let after = ''; ; ) {
    const ids = await openBatches(db, { tenantId, after, limit: 100 });
    for (const batchId of ids) {
      // One whose window closed meanwhile is the reconciler's.
      const { changed } = await cancelBatch(db, { batchId, actor: by, reason }, { now }).catch((error: unknown) => {
        if (error instanceof ControlError && error.code === 'INVALID_STATE') return { changed: false };
        throw error;
      });
      if (changed) ended.push(batchId);
    }
    const last = ids.at(-1);
    if (last === undefined) return ended;
    after = last;
  }
}
