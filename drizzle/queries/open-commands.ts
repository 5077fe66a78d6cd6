/**
 * Delivery from a node's log: reads by cursor, which write nothing. What a read gives out is what the statement sees: commands of the
 * asker's own epoch, and members of a batch only while it is approved.
 */
import { type CommandStateNumber, commandStates } from '../../domain/commands/states.ts';
import type { Executor } from '../client.ts';

export interface DeliveryCursor {
  readonly nodeId: string;
  /** Highest position sent in this session; 0 at its start, which reads again what is open or acknowledged but unfinished. */
  readonly afterSeq: number;
}

export interface QueuedCommand {
  readonly nodeId: string;
  readonly seq: number;
  readonly id: string;
  readonly kind: string;
  readonly lane: string;
  /** An encoded CommandBody: send exactly these bytes. */
  readonly body: Uint8Array;
  /** An encoded Signature. */
  readonly signature: Uint8Array;
  readonly deadline: number;
  /** open or acked. */
  readonly state: CommandStateNumber;
  /** An encoded BatchApproval, as it is stored; absent outside of a batch. */
  readonly approval?: Uint8Array | null;
  /** An encoded BatchProof: that of the leaf it was put into its batch by. */
  readonly proof?: Uint8Array | null;
}

/**
 * A member of a batch goes out with the approval and the proof of its own leaf, and only while the batch is approved and its
 * window open by the database's clock (BAT-026 to BAT-029); one that a machine has acknowledged is repeated as it was. Held
 * commands have no place in the log and are never looked at (BAT-027).
 *
 * Subqueries that are asked for members alone: a join, or a lateral one, costs every other command a fifth of its delivery. With
 * `limit 1` they stay what they are: an `exists` could be answered by hashing the whole table of members.
 */
const isReady = `(select true from command_batches b
             join command_batch_members m on m.command_id = n.id and m.batch_id = b.id
             join command_batch_scope s on s.batch_id = m.batch_id and s.leaf_index = m.leaf_index
             where b.id = n.batch_id and (n.state = ${commandStates.acked} or (b.state = 'approved' and b.not_after >= now())) limit 1)`;
const approvalOf = '(select b.approval from command_batches b where b.id = c.batch_id limit 1)';
const proofOf = `(select s.proof from command_batch_members m
           join command_batch_scope s on s.batch_id = m.batch_id and s.leaf_index = m.leaf_index where m.command_id = c.id limit 1)`;

export const readOpen = {
  name: 'dispatch-read',
  text: `select c.node_id as "nodeId", c.seq, c.id, c.kind, c.lane, c.body, c.signature, c.deadline, c.state,
           case when c.batch_id is not null then ${approvalOf} end as approval, case when c.batch_id is not null then ${proofOf} end as proof
         from unnest($1::text[], $2::bigint[]) as u(node_id, after_seq)
         cross join lateral (
           select * from node_commands n where n.node_id = u.node_id and n.seq > greatest(u.after_seq, 0) and n.state < 2
             and (n.batch_id is null or ${isReady})
           order by n.seq limit $3) c`,
};

/** Unfinished commands behind each cursor, in log order per node. Reads only. */
export const readOpenCommands = (db: Executor, cursors: readonly DeliveryCursor[], limitPerNode: number): Promise<QueuedCommand[]> =>
  db.query<QueuedCommand>(readOpen, [cursors.map((c) => c.nodeId), cursors.map((c) => c.afterSeq), limitPerNode]);

export interface OwnedCursor extends DeliveryCursor {
  /** The epoch of the session that asks. */
  readonly epoch: number;
}

const foreignEpochs = {
  name: 'dispatch-foreign-epochs',
  text: `select u.node_id as "nodeId" from unnest($1::text[], $2::bigint[]) as u(node_id, epoch)
         left join node_queue q on q.node_id = u.node_id where q.epoch is distinct from u.epoch`,
};

/**
 * As `readOpenCommands`, of the nodes whose epoch is still the asker's. Commands first, ownership second: what a newer session may
 * already have been given is dropped here, however long the asker slept between the two.
 */
export async function readOwnedCommands(
  db: Executor,
  cursors: readonly OwnedCursor[],
  limitPerNode: number,
): Promise<{ readonly commands: readonly QueuedCommand[]; readonly fenced: readonly string[] }> {
  const commands = await readOpenCommands(db, cursors, limitPerNode);
  const rows = await db.query<{ nodeId: string }>(foreignEpochs, [cursors.map((c) => c.nodeId), cursors.map((c) => c.epoch)]);
  if (rows.length === 0) return { commands, fenced: [] };
  const fenced = new Set(rows.map((row) => row.nodeId));
  return { commands: commands.filter((command) => !fenced.has(command.nodeId)), fenced: [...fenced] };
}
