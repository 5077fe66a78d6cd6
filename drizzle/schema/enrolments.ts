import { boolean, integer, pgTable, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const enrolments = pgTable('enrolments', {
  id: text('id').primaryKey(),
  nodeId: text('node_id').notNull(),
  siteId: text('site_id').notNull(),
  role: text('role').notNull(),
  tenantId: text('tenant_id').notNull(),
  kind: text('kind').notNull(),
  baseGeneration: int8('base_generation'),
  address: text('address').notNull(),
  port: integer('port').notNull(),
  login: text('login').notNull(),
  becomeRoot: boolean('become_root').notNull(),
  hostKey: text('host_key').notNull(),
  credential: text('credential').notNull(),
  state: text('state').notNull().default('open'),
  csrSha256: bytea('csr_sha256'),
  deadline: instantColumn('deadline'),
  createdBy: text('created_by').notNull(),
  reason: text('reason').notNull(),
  createdAt: instantColumn('created_at').notNull(),
  endedAt: instantColumn('ended_at'),
  endReason: text('end_reason').notNull().default(''),
});
