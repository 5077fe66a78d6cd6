import { jsonb, pgTable, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const joinTokens = pgTable('join_tokens', {
  id: text('id').primaryKey(),
  secretSha256: bytea('secret_sha256').notNull(),
  siteId: text('site_id').notNull(),
  role: text('role').notNull(),
  nodeId: text('node_id'),
  createdBy: text('created_by').notNull(),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
  expiresAt: instantColumn('expires_at').notNull(),
  usedAt: instantColumn('used_at'),
  usedByNode: text('used_by_node'),
  usedCsrSha256: bytea('used_csr_sha256'),
  tenantId: text('tenant_id').notNull().default('default'),
  attestor: text('attestor').notNull().default('join-token'),
  runId: text('run_id'),
});

export const renewReplays = pgTable('renew_replays', {
  statementSha256: bytea('statement_sha256').primaryKey(),
  expiresAt: instantColumn('expires_at').notNull(),
});

export const tpmChallenges = pgTable('tpm_challenges', {
  id: text('id').primaryKey(),
  ekSha256: bytea('ek_sha256').notNull(),
  akName: bytea('ak_name').notNull(),
  csrSha256: bytea('csr_sha256').notNull(),
  secretSha256: bytea('secret_sha256').notNull(),
  createdAt: instantColumn('created_at').notNull(),
  expiresAt: instantColumn('expires_at').notNull(),
  usedAt: instantColumn('used_at'),
  usedGeneration: int8('used_generation'),
});

export const joinRequests = pgTable('join_requests', {
  id: text('id').primaryKey(),
  attestor: text('attestor').notNull(),
  role: text('role').notNull(),
  nodeId: text('node_id'),
  siteId: text('site_id').notNull(),
  csrSha256: bytea('csr_sha256').notNull(),
  hardware: jsonb('hardware').notNull(),
  firstAskedAt: instantColumn('first_asked_at').notNull(),
  lastAskedAt: instantColumn('last_asked_at').notNull(),
  state: text('state').notNull(),
  decidedAt: instantColumn('decided_at'),
  decidedBy: text('decided_by').notNull().default(''),
  reason: text('reason').notNull().default(''),
});
