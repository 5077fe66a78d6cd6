import { integer, pgTable, text } from 'drizzle-orm/pg-core';
import { instantColumn, int8 } from './columns.ts';

export const controlProcesses = pgTable('control_processes', {
  id: text('id').primaryKey(),
  kind: text('kind').notNull(),
  host: text('host').notNull().default(''),
  pid: integer('pid').notNull().default(0),
  version: text('version').notNull().default(''),
  bundleDigest: text('bundle_digest'),
  bundleGeneration: int8('bundle_generation'),
  trustVersionSeen: int8('trust_version_seen'),
  servingSerial: text('serving_serial'),
  startedAt: instantColumn('started_at').notNull().defaultNow(),
  lastSeenAt: instantColumn('last_seen_at').notNull().defaultNow(),
});

export const workerCerts = pgTable('worker_certs', {
  serial: text('serial').primaryKey(),
  rootId: text('root_id').notNull(),
  processId: text('process_id').notNull(),
  notBefore: instantColumn('not_before').notNull(),
  notAfter: instantColumn('not_after').notNull(),
  issuedAt: instantColumn('issued_at').notNull().defaultNow(),
});

export const bundleFreshness = pgTable('bundle_freshness', {
  id: integer('id').primaryKey(),
  generation: int8('generation').notNull(),
  digest: text('digest').notNull(),
  recordedAt: instantColumn('recorded_at').notNull().defaultNow(),
});

export const pkiBundle = pgTable('pki_bundle', {
  id: integer('id').primaryKey(),
  revision: int8('revision').notNull(),
  document: text('document').notNull(),
  updatedAt: instantColumn('updated_at').notNull().defaultNow(),
});
