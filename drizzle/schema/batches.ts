import { integer, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const tenants = pgTable('tenants', {
  id: text('id').primaryKey(),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
  deletedAt: instantColumn('deleted_at'),
});

export const commandBatches = pgTable('command_batches', {
  id: text('id').primaryKey(),
  tenantId: text('tenant_id').notNull(),
  state: text('state').notNull(),
  scopeRoot: bytea('scope_root').notNull(),
  scopeSize: integer('scope_size').notNull(),
  required: integer('required').notNull(),
  notAfter: instantColumn('not_after').notNull(),
  trustDomain: text('trust_domain').notNull(),
  reason: text('reason').notNull(),
  createdBy: text('created_by').notNull(),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
  waves: jsonb('waves'),
  members: integer('members').notNull().default(0),
  approval: bytea('approval'),
  approvedAt: instantColumn('approved_at'),
  closedAt: instantColumn('closed_at'),
  closedBy: text('closed_by').notNull().default(''),
  closeReason: text('close_reason').notNull().default(''),
  idempotencyKey: text('idempotency_key').notNull().default(''),
  requestDigest: bytea('request_digest').notNull().default(Buffer.alloc(0)),
  createdByAgent: text('created_by_agent'),
  delegationId: text('delegation_id'),
});

export const commandBatchScope = pgTable(
  'command_batch_scope',
  {
    batchId: text('batch_id').notNull(),
    leafIndex: integer('leaf_index').notNull(),
    leafHash: bytea('leaf_hash').notNull(),
    subject: text('subject').notNull(),
    kind: text('kind').notNull(),
    proof: bytea('proof').notNull(),
    payloadSha256: bytea('payload_sha256').notNull().default(Buffer.alloc(0)),
    payloadTypeUrl: text('payload_type_url'),
    payloadValue: bytea('payload_value'),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.leafIndex] })],
);

export const commandBatchMembers = pgTable(
  'command_batch_members',
  {
    batchId: text('batch_id').notNull(),
    memberIndex: integer('member_index').notNull(),
    commandId: text('command_id').notNull().unique(),
    leafIndex: integer('leaf_index').notNull(),
    payloadSha256: bytea('payload_sha256').notNull().default(Buffer.alloc(0)),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.memberIndex] })],
);

export const commandBatchApprovals = pgTable(
  'command_batch_approvals',
  {
    batchId: text('batch_id').notNull(),
    kid: text('kid').notNull(),
    signature: bytea('signature').notNull(),
    approvedBy: text('approved_by').notNull(),
    createdAt: instantColumn('created_at').notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.kid] })],
);

export const approverSetChanges = pgTable('approver_set_changes', {
  epoch: int8('epoch').primaryKey(),
  approverSet: jsonb('approver_set').notNull(),
  approverSetSha256: bytea('approver_set_sha256').notNull(),
  signatures: jsonb('signatures').notNull().default([]),
  publishedVersion: int8('published_version'),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
  createdBy: text('created_by').notNull().default(''),
});
