import { integer, jsonb, pgTable, text } from 'drizzle-orm/pg-core';
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
});
