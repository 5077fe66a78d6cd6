import { sql } from 'drizzle-orm';
import { integer, pgTable, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const workloadIssuers = pgTable('workload_issuers', {
  issuer: text('issuer').primaryKey(),
  revision: int8('revision').notNull(),
  sealedKeys: bytea('sealed_keys').notNull(),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
  updatedAt: instantColumn('updated_at').notNull().defaultNow(),
});

export const workloadInstances = pgTable('workload_instances', {
  id: text('id').primaryKey(),
  tenantId: text('tenant_id').notNull(),
  nodeId: text('node_id').notNull(),
  startedAt: instantColumn('started_at').notNull().defaultNow(),
  endedAt: instantColumn('ended_at'),
  address: text('address'),
  sandboxEndsAt: instantColumn('sandbox_ends_at'),
  capturedOn: text('captured_on'),
  windowStart: instantColumn('window_start').notNull().default(sql`'-infinity'`),
  windowTokens: integer('window_tokens').notNull().default(0),
});
