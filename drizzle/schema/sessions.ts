import { integer, jsonb, pgTable, text, uuid } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const nodeSessions = pgTable('node_sessions', {
  id: uuid('id').primaryKey(),
  nodeId: text('node_id').notNull(),
  gatewayId: text('gateway_id').notNull(),
  epoch: int8('epoch').notNull(),
  role: text('role').notNull(),
  certIssuer: text('cert_issuer').notNull(),
  certSerial: text('cert_serial').notNull(),
  peer: text('peer').notNull().default(''),
  bootId: text('boot_id').notNull().default(''),
  startedAt: instantColumn('started_at').notNull().defaultNow(),
  lastSeenAt: instantColumn('last_seen_at').notNull().defaultNow(),
  endedAt: instantColumn('ended_at'),
  endReason: text('end_reason'),
  daemonVersion: text('daemon_version').notNull().default(''),
  protoMax: integer('proto_max').notNull().default(1),
  capabilities: text('capabilities').array().notNull().default([]),
  trustVersion: int8('trust_version'),
  approverSetEpoch: int8('approver_set_epoch'),
  approverSetSha256: bytea('approver_set_sha256'),
  specGeneration: int8('spec_generation'),
  sectionFaults: jsonb('section_faults'),
});

export const nodePresence = pgTable('node_presence', {
  nodeId: text('node_id').primaryKey(),
  sessionId: uuid('session_id').notNull().unique(),
  lastSeenAt: instantColumn('last_seen_at').notNull(),
  trustVersion: int8('trust_version'),
});
