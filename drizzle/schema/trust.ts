import { integer, jsonb, pgTable, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const trustBundleState = pgTable('trust_bundle_state', {
  id: integer('id').primaryKey(),
  version: int8('version').notNull(),
  digest: text('digest').notNull(),
  roots: text('roots').array().notNull(),
  body: bytea('body').notNull(),
  signature: bytea('signature').notNull(),
  publishedAt: instantColumn('published_at').notNull().defaultNow(),
  publishedBy: text('published_by').notNull(),
  approverSet: jsonb('approver_set'),
  approverSetSha256: bytea('approver_set_sha256'),
  approverSetEpoch: int8('approver_set_epoch').notNull().default(0),
});

export const trustBundleHistory = pgTable('trust_bundle_history', {
  version: int8('version').primaryKey(),
  digest: text('digest').notNull(),
  reason: text('reason').notNull().default(''),
  publishedAt: instantColumn('published_at').notNull().defaultNow(),
  publishedBy: text('published_by').notNull(),
});
