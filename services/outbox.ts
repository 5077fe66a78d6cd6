/**
 * Completions on their way to Temporal (gateway.md, rule 3 of the interplay). An activity that waits registers its ids under
 * the command's row lock; the end of the command queues a row in the same transaction; a relay takes due rows (several relays
 * never the same one), completes by id and removes them. A lost row is found by the sweep.
 */

import { commandStates } from '../domain/commands/states.ts';
import { connectedWithinMs } from '../domain/session/presence.ts';
import { minute, second } from '../domain/time.ts';
import { type Executor, instant } from '../drizzle/client.ts';
import { unknownCommand } from './command-ends.ts';

export interface ActivityIds {
  readonly workflowId: string;
  readonly runId: string;
  readonly activityId: string;
}

export interface CommandWait extends ActivityIds {
  readonly commandId: string;
}

const register = {
  name: 'wait-register',
  text: `with locked as (select id, state from node_commands where id = $1 for no key update),
         waiting as (insert into command_waits (command_id, workflow_id, run_id, activity_id, registered_at)
           select id, $2, $3, $4, $5 from locked where state < ${commandStates.done}
           on conflict (command_id) do update set workflow_id = excluded.workflow_id, run_id = excluded.run_id,
             activity_id = excluded.activity_id, registered_at = excluded.registered_at)
         select state from locked`,
};

/**
 * Says which activity waits for a command. A finished command is answered at once and nobody waits; else its end, whenever it
 * commits, queues the completion. A later registration replaces the earlier one: the newest attempt is the one that waits.
 *
 * One statement: an end that commits while it waits for the lock is the state that it goes on with.
 *
 * @throws NOT_FOUND for an unknown command
 */
export async function registerWait(
  db: Executor,
  { commandId, workflowId, runId, activityId, now }: CommandWait & { readonly now: number },
): Promise<{ readonly finished: boolean }> {
  const [row] = await db.query<{ state: number }>(register, [commandId, workflowId, runId, activityId, instant(now)]);
  if (row === undefined) throw unknownCommand(commandId);
  return { finished: row.state >= commandStates.done };
}

export interface DueCompletion extends CommandWait {
  /** How often it was tried before. */
  readonly attempts: number;
}

const take = {
  name: 'outbox-take',
  text: `with due as (select command_id from completion_outbox where next_at <= $1 order by next_at limit $2 for update skip locked)
         update completion_outbox o set attempts = o.attempts + 1, next_at = $3 from due where o.command_id = due.command_id
         returning o.command_id as "commandId", o.workflow_id as "workflowId", o.run_id as "runId", o.activity_id as "activityId",
           o.attempts - 1 as attempts`,
};

/** How long a taken row is the taker's; a relay that dies loses it after that. */
export const outboxLeaseMs = 30 * second;

/** Takes due rows: no other relay sees them until the lease ends. */
export const takeDueCompletions = (db: Executor, input: { readonly now: number; readonly limit: number }): Promise<DueCompletion[]> =>
  db.query<DueCompletion>(take, [instant(input.now), input.limit, instant(input.now + outboxLeaseMs)]);

/** A wait that was registered again meanwhile (another attempt) stays. */
const done = {
  name: 'outbox-done',
  text: `with gone as (delete from completion_outbox where command_id = any($1::text[]) returning command_id, activity_id, run_id)
         delete from command_waits w using gone g where w.command_id = g.command_id and w.activity_id = g.activity_id and w.run_id = g.run_id`,
};

/** Completed, or nobody waits any more. */
export async function finishCompletions(db: Executor, commandIds: readonly string[]): Promise<void> {
  if (commandIds.length > 0) await db.query(done, [commandIds]);
}

/** Doubling from one second, at most a minute. */
export const retryDelayMs = (attempts: number): number => Math.min(minute, second * 2 ** Math.min(attempts, 6));

const later = { name: 'outbox-later', text: 'update completion_outbox set next_at = $2 where command_id = $1' };

export async function backOffCompletion(
  db: Executor,
  input: { readonly commandId: string; readonly attempts: number; readonly now: number },
): Promise<void> {
  await db.query(later, [input.commandId, instant(input.now + retryDelayMs(input.attempts))]);
}

const sweep = {
  name: 'outbox-sweep',
  text: `insert into completion_outbox (command_id, workflow_id, run_id, activity_id, next_at, created_at)
         select w.command_id, w.workflow_id, w.run_id, w.activity_id, $1, $1 from command_waits w join node_commands c on c.id = w.command_id
         where c.state >= 2 and not exists (select from completion_outbox o where o.command_id = w.command_id)
         limit $2 on conflict (command_id) do nothing returning command_id as id`,
};

/** Queues what should have been queued. Finds nothing unless something is wrong: count it. */
export async function sweepLostCompletions(db: Executor, input: { readonly now: number; readonly limit: number }): Promise<string[]> {
  return (await db.query<{ id: string }>(sweep, [instant(input.now), input.limit])).map((row) => row.id);
}

export interface OpenWait extends CommandWait {
  readonly nodeId: string;
  readonly deadline: number;
  readonly acked: boolean;
  /** The node has a session that was seen lately. */
  readonly connected: boolean;
}

const open = {
  name: 'waits-open',
  text: `select w.command_id as "commandId", w.workflow_id as "workflowId", w.run_id as "runId", w.activity_id as "activityId",
           c.node_id as "nodeId", c.deadline, c.state = 1 as acked, coalesce(s.last_seen_at >= $1, false) as connected
         from command_waits w join node_commands c on c.id = w.command_id and c.state < 2
         left join node_sessions s on s.node_id = c.node_id and s.ended_at is null
         where w.command_id > $2 order by w.command_id limit $3`,
};

/** Waits whose command has not ended: what the relay heartbeats, in pages by command id. */
export const readOpenWaits = (
  db: Executor,
  input: { readonly now: number; readonly afterId: string; readonly limit: number },
): Promise<OpenWait[]> => db.query<OpenWait>(open, [instant(input.now - connectedWithinMs), input.afterId, input.limit]);
