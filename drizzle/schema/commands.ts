import { sql } from 'drizzle-orm';
import { integer, pgTable, primaryKey, smallint, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const nodeQueue = pgTable('node_queue', {
  nodeId: text('node_id').primaryKey(),
  nextSeq: int8('next_seq').notNull().default(0),
  epoch: int8('epoch').notNull().default(0),
  generation: int8('generation').default(1),
  ownerGateway: text('owner_gateway'),
  ownerSince: instantColumn('owner_since'),
  ackedSeq: int8('acked_seq').notNull().default(0),
});

export const nodeCommands = pgTable(
  'node_commands',
  {
    nodeId: text('node_id').notNull(),
    seq: int8('seq').notNull(),
    id: text('id').notNull().unique(),
    kind: text('kind').notNull(),
    lane: text('lane').notNull(),
    body: bytea('body').notNull(),
    bodySha256: bytea('body_sha256').notNull(),
    signature: bytea('signature').notNull(),
    signerRoot: text('signer_root').notNull(),
    signerNotAfter: instantColumn('signer_not_after').notNull(),
    batchId: text('batch_id'),
    requestedBy: text('requested_by').notNull().default(''),
    notBefore: instantColumn('not_before').notNull().default(sql`'-infinity'`),
    deadline: instantColumn('deadline').notNull(),
    state: smallint('state').notNull().default(0),
    rejectReason: text('reject_reason'),
    createdAt: instantColumn('created_at').notNull().defaultNow(),
    ackedAt: instantColumn('acked_at'),
    finishedAt: instantColumn('finished_at'),
  },
  (table) => [primaryKey({ columns: [table.nodeId, table.seq] })],
);

export const nodeResults = pgTable('node_results', {
  commandId: text('command_id').primaryKey(),
  nodeId: text('node_id').notNull(),
  outcome: smallint('outcome').notNull(),
  payload: bytea('payload'),
  errorCode: text('error_code').notNull().default(''),
  errorMessage: text('error_message').notNull().default(''),
  startedAt: instantColumn('started_at'),
  finishedAt: instantColumn('finished_at'),
  epoch: int8('epoch').notNull(),
  receivedAt: instantColumn('received_at').notNull().defaultNow(),
});

export const commandProgress = pgTable('command_progress', {
  commandId: text('command_id').primaryKey(),
  done: int8('done').notNull(),
  total: int8('total').notNull(),
  note: text('note').notNull(),
  epoch: int8('epoch').notNull(),
  at: instantColumn('at').notNull(),
  firstDone: int8('first_done').notNull(),
  firstAt: instantColumn('first_at').notNull(),
});

export const commandWaits = pgTable('command_waits', {
  commandId: text('command_id').primaryKey(),
  workflowId: text('workflow_id').notNull(),
  runId: text('run_id').notNull(),
  activityId: text('activity_id').notNull(),
  registeredAt: instantColumn('registered_at').notNull().defaultNow(),
});

export const completionOutbox = pgTable('completion_outbox', {
  commandId: text('command_id').primaryKey(),
  workflowId: text('workflow_id').notNull(),
  runId: text('run_id').notNull(),
  activityId: text('activity_id').notNull(),
  attempts: integer('attempts').notNull().default(0),
  nextAt: instantColumn('next_at').notNull().defaultNow(),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
});
