/** Where the next wave of a batch begins, and whom it may be waiting for. */
import type { Executor } from '../client.ts';

const firstHeld = {
  name: 'batch-first-held',
  text: `select m.member_index as index from command_batch_members m join node_commands c on c.id = m.command_id
         where m.batch_id = $1 and c.state = 0 and c.not_before = 'infinity' order by m.member_index limit 1`,
};

/** The first member that is still held; null when none is. Commands that were cancelled one by one leave gaps behind it. */
export const firstHeldMember = async (db: Executor, batchId: string): Promise<number | null> =>
  (await db.query<{ index: number }>(firstHeld, [batchId]))[0]?.index ?? null;

const failed = {
  name: 'batch-failures',
  text: `select c.id as "commandId", c.node_id as "nodeId", c.state,
           coalesce(nullif(r.error_message, ''), nullif(r.error_code, ''), c.reject_reason, '') as error
         from command_batch_members m join node_commands c on c.id = m.command_id left join node_results r on r.command_id = c.id
         where m.batch_id = $1 and c.state = any($2::smallint[]) order by m.member_index limit $3`,
};

export interface FailedMember {
  readonly commandId: string;
  readonly nodeId: string;
  readonly state: number;
  readonly error: string;
}

/** Members in one of these states, in the order of the batch. */
export const membersInStates = (
  db: Executor,
  { batchId, states, limit }: { batchId: string; states: readonly number[]; limit: number },
): Promise<FailedMember[]> => db.query<FailedMember>(failed, [batchId, states, limit]);
