import { pgTable, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn } from './columns.ts';

export const reservations = pgTable('reservations', {
  id: text('id').primaryKey(),
  tenantId: text('tenant_id').notNull(),
  nodeId: text('node_id').notNull(),
  allocationId: text('allocation_id').notNull().unique(),
  state: text('state').notNull().default('pending'),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
  activatedAt: instantColumn('activated_at'),
  endedAt: instantColumn('ended_at'),
  boundBody: bytea('bound_body'),
  boundSignature: bytea('bound_signature'),
  boundCertIssuer: text('bound_cert_issuer'),
  boundCertSerial: text('bound_cert_serial'),
});
