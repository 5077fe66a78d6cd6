import { pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn } from './columns.ts';

export const rotationOverrides = pgTable(
  'rotation_overrides',
  {
    rotationId: text('rotation_id').notNull(),
    kind: text('kind').notNull(),
    subject: text('subject').notNull(),
    actor: text('actor').notNull(),
    reason: text('reason').notNull(),
    at: instantColumn('at').notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.rotationId, table.kind, table.subject] })],
);

export const rotationEvidence = pgTable(
  'rotation_evidence',
  {
    rotationId: text('rotation_id').notNull(),
    stage: text('stage').notNull(),
    at: instantColumn('at').notNull(),
    document: bytea('document').notNull(),
    signature: bytea('signature').notNull(),
  },
  (table) => [primaryKey({ columns: [table.rotationId, table.stage] })],
);
