/**
 * How far running commands are: the last word of each, in one statement for all sessions of a gateway.
 *
 * No log is locked for it. What another epoch says is fenced as everything is; a session that is taken over in between may
 * still leave one word, and never over one of its successor.
 */
import { type Executor, instant } from '../client.ts';

export interface CommandProgressRow {
  readonly nodeId: string;
  readonly epoch: number;
  readonly commandId: string;
  readonly done: number;
  /** 0 when the node does not know. */
  readonly total: number;
  readonly note: string;
}

const write = {
  name: 'progress-write',
  text: `with input as (select * from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
                          as i(node_id, epoch, id, done, total, note)),
    owned as (select node_id, epoch from node_queue where (node_id, epoch) in (select node_id, epoch from input)),
    kept as (insert into command_progress as p (command_id, done, total, note, epoch, at, first_done, first_at)
             select c.id, i.done, i.total, i.note, i.epoch, $7, i.done, $7
             from input i join owned using (node_id, epoch)
             join node_commands c on c.id = i.id and c.node_id = i.node_id and c.state < 2 order by c.id
             on conflict (command_id) do update set done = excluded.done, total = excluded.total, note = excluded.note,
               epoch = excluded.epoch, at = excluded.at,
               first_done = case when excluded.done < p.done then excluded.done else p.first_done end,
               first_at = case when excluded.done < p.done then excluded.at else p.first_at end
             where p.epoch <= excluded.epoch)
    select i.id from input i left join owned o using (node_id, epoch) where o.node_id is null`,
};

/**
 * Of a command that has ended, is unknown or is another node's, nothing is kept.
 *
 * @param rows one a command of a session
 */
export async function recordProgress(
  db: Executor,
  rows: readonly CommandProgressRow[],
  now: number,
): Promise<{ readonly fenced: readonly string[] }> {
  if (rows.length === 0) return { fenced: [] };
  const fenced = await db.query<{ id: string }>(write, [
    rows.map((row) => row.nodeId),
    rows.map((row) => row.epoch),
    rows.map((row) => row.commandId),
    rows.map((row) => row.done),
    rows.map((row) => row.total),
    rows.map((row) => row.note),
    instant(now),
  ]);
  return { fenced: fenced.map(({ id }) => id) };
}

/** What is kept of a command's progress. */
export interface StoredProgress {
  readonly commandId: string;
  readonly done: number;
  readonly total: number;
  readonly note: string;
  readonly at: number;
  readonly firstDone: number;
  readonly firstAt: number;
}

const read = {
  name: 'progress-read',
  text: `select command_id as "commandId", done, total, note, at, first_done as "firstDone", first_at as "firstAt"
         from command_progress where command_id = any($1::text[])`,
};

/** Of these commands, those whose node has said how far they are. */
export async function findProgress(db: Executor, commandIds: readonly string[]): Promise<ReadonlyMap<string, StoredProgress>> {
  if (commandIds.length === 0) return new Map();
  return new Map((await db.query<StoredProgress>(read, [commandIds])).map((row) => [row.commandId, row]));
}
