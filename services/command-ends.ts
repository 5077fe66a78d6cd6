/** Looking a command up, and the ends that the control plane decides: cancelled, expired. Those a node reports: drizzle/queries/dispatch.ts. */
import { commandKinds } from '../domain/commands/kinds.ts';
import { type CommandState, commandStateName, commandStates, isFinished } from '../domain/commands/states.ts';
import { ControlError } from '../domain/errors.ts';
import { second } from '../domain/time.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { readCommands, releaseDueCommands, type StoredCommand } from '../drizzle/queries/commands.ts';
import { queueCompletions } from '../drizzle/queries/dispatch.ts';

export interface CommandResultView {
  /** CommandOutcome of the protocol. */
  readonly outcome: number;
  /** An encoded google.protobuf.Any; null for none. */
  readonly payload: Uint8Array | null;
  readonly errorCode: string;
  readonly errorMessage: string;
  readonly startedAt: number | null;
}

export interface CommandStatus {
  readonly id: string;
  readonly nodeId: string;
  readonly kind: string;
  readonly state: CommandState;
  readonly finished: boolean;
  /** Why it was rejected, cancelled or expired. */
  readonly reason: string | null;
  readonly requestedBy: string;
  readonly signerRoot: string;
  readonly createdAt: number;
  readonly deadline: number;
  readonly ackedAt: number | null;
  readonly finishedAt: number | null;
  /** Its batch; null: none. */
  readonly batchId: string | null;
  /** Its batch is not approved, or not released up to it. */
  readonly awaitingApproval: boolean;
  readonly result: CommandResultView | null;
}

function toStatus(row: StoredCommand): CommandStatus {
  const { id, nodeId, kind, requestedBy, signerRoot, createdAt, deadline, ackedAt, finishedAt } = row;
  const state = commandStateName(row.state);
  if (state === undefined) throw new ControlError('INTERNAL', `command ${id} has state ${row.state}, which this version does not know`);
  const { outcome, payload, errorCode, errorMessage, startedAt } = row;
  const result = outcome === null ? null : { outcome, payload, errorCode: errorCode ?? '', errorMessage: errorMessage ?? '', startedAt };
  return {
    id,
    nodeId,
    kind,
    state,
    finished: isFinished(state),
    reason: row.rejectReason,
    requestedBy,
    signerRoot,
    createdAt,
    deadline,
    ackedAt,
    finishedAt,
    batchId: row.batchId,
    awaitingApproval: state === 'open' && row.notBefore === Infinity,
    result,
  };
}

export async function findCommand(db: Executor, id: string): Promise<CommandStatus | undefined> {
  const row = (await readCommands(db, [id])).get(id);
  return row === undefined ? undefined : toStatus(row);
}

/** @throws NOT_FOUND */
export async function getCommand(db: Executor, id: string): Promise<CommandStatus> {
  const found = await findCommand(db, id);
  if (found !== undefined) return found;
  throw unknownCommand(id);
}

export const unknownCommand = (id: string): ControlError<'NOT_FOUND'> =>
  new ControlError('NOT_FOUND', `no command is called ${id}`, { details: { reason: 'unknown-command', commandId: id } });

const cancel = {
  name: 'commands-cancel',
  text: `update node_commands set state = ${commandStates.cancelled}, reject_reason = $2, finished_at = $3 where id = $1 and state < 2 returning id`,
};

/**
 * Ends a command that has not ended. One that the node has taken already may still run there; what it reports is kept.
 *
 * @returns false when it had ended before
 * @throws NOT_FOUND
 */
export function cancelCommand(
  db: Database,
  input: { readonly id: string; readonly reason: string; readonly now: number },
): Promise<boolean> {
  return db.transaction(async (tx) => {
    const ended = await tx.query(cancel, [input.id, input.reason, instant(input.now)]);
    if (ended.length === 0) await getCommand(tx, input.id);
    await queueCompletions(tx, ended.length === 0 ? [] : [input.id], input.now);
    return ended.length > 0;
  });
}

const cancelAll = {
  name: 'commands-cancel-node',
  text: `update node_commands set state = ${commandStates.cancelled}, reject_reason = $2, finished_at = $3
         where node_id = $1 and state < 2 returning id`,
};

/** Ends every unfinished command of a node whose identity ends: they were signed for that identity. In the caller's transaction. */
export async function cancelCommandsOf(
  tx: Executor,
  input: { readonly nodeId: string; readonly reason: string; readonly now: number },
): Promise<number> {
  const ended = await tx.query<{ id: string }>(cancelAll, [input.nodeId, input.reason, instant(input.now)]);
  await queueCompletions(
    tx,
    ended.map((row) => row.id),
    input.now,
  );
  return ended.length;
}

/** An ack that was on its way at the deadline still counts. */
const ackGraceMs = 30 * second;

const expire = {
  name: 'commands-expire',
  text: `with due as (
           select c.id from node_commands c left join unnest($2::text[], $3::bigint[]) as k(kind, timeout_ms) on k.kind = c.kind
           where c.state < 2 and c.deadline < $1 and c.not_before < 'infinity'
             and c.deadline + make_interval(secs => (case c.state when 1 then coalesce(k.timeout_ms, 0) else 0 end + $4::bigint) / 1000.0) < $1
           order by c.deadline limit $5 for no key update of c skip locked)
         update node_commands c set state = ${commandStates.expired}, finished_at = $1,
           reject_reason = case c.state when 0 then 'not taken before its deadline' else 'no result in time' end
         from due where c.id = due.id returning c.id`,
};

const kindNames = Object.keys(commandKinds);
const kindTimeouts = Object.values(commandKinds).map((kind) => kind.timeoutMs);

/**
 * Ends commands whose time is over: not taken by the deadline, or taken and without a result for the kind's own time after it.
 *
 * @returns the ids that ended now; up to `limit`
 */
export function expireCommands(db: Database, input: { readonly now: number; readonly limit?: number }): Promise<string[]> {
  return db.transaction(async (tx) => {
    const rows = await tx.query<{ id: string }>(expire, [instant(input.now), kindNames, kindTimeouts, ackGraceMs, input.limit ?? 500]);
    const ids = rows.map((row) => row.id);
    await queueCompletions(tx, ids, input.now);
    return ids;
  });
}

export interface Reconciled {
  readonly expired: number;
  /** Nodes whose scheduled commands have become due. */
  readonly released: readonly string[];
}

/** What time alone changes in the logs: due commands enter, overdue ones end. Reads the clock it is given and nothing else. */
export async function reconcileCommands(
  db: Database,
  input: { readonly now: number; readonly poke?: (nodeIds: readonly string[]) => void },
): Promise<Reconciled> {
  const released = await releaseDueCommands(db, { now: input.now, limit: 500 });
  if (released.length > 0) input.poke?.(released);
  const expired = await expireCommands(db, { now: input.now });
  return { expired: expired.length, released };
}
