import { integer, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const auditCounter = pgTable('audit_counter', {
  id: integer('id').primaryKey(),
  seq: int8('seq').notNull(),
  hash: bytea('hash').notNull(),
});

export const auditEvents = pgTable('audit_events', {
  seq: int8('seq').primaryKey(),
  key: text('key').notNull().unique(),
  at: instantColumn('at').notNull(),
  actor: text('actor').notNull(),
  action: text('action').notNull(),
  subject: text('subject').notNull(),
  details: jsonb('details').notNull().default({}),
  prevHash: bytea('prev_hash').notNull(),
  hash: bytea('hash').notNull(),
  tenantId: text('tenant_id').notNull().default('deployment'),
});

export const auditCheckpoints = pgTable(
  'audit_checkpoints',
  {
    tenantId: text('tenant_id').notNull(),
    number: int8('number').notNull(),
    at: instantColumn('at').notNull(),
    throughSeq: int8('through_seq').notNull(),
    document: bytea('document').notNull(),
    signature: bytea('signature').notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenantId, table.number] })],
);
