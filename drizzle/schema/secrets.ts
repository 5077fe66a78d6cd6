import { integer, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn } from './columns.ts';

export const secrets = pgTable(
  'secrets',
  {
    path: text('path').notNull(),
    version: integer('version').notNull(),
    sealed: bytea('sealed'),
    createdBy: text('created_by').notNull(),
    createdAt: instantColumn('created_at').notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.path, table.version] })],
);
