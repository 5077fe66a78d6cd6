import { bigint, pgTable, text } from 'drizzle-orm/pg-core';
import { instantColumn, int8 } from './columns.ts';

export const sshCertificates = pgTable('ssh_certificates', {
  /** 63 bits: more than a number holds. */
  serial: bigint('serial', { mode: 'bigint' }).primaryKey(),
  nodeId: text('node_id').notNull(),
  account: text('account').notNull(),
  principal: text('principal').notNull(),
  keyId: text('key_id').notNull(),
  publicKey: text('public_key').notNull(),
  issuedTo: text('issued_to').notNull(),
  issuedAt: instantColumn('issued_at').notNull().defaultNow(),
  validBefore: instantColumn('valid_before').notNull(),
  revokedAt: instantColumn('revoked_at'),
  revokedBy: text('revoked_by'),
  revokeReason: text('revoke_reason'),
  listedGeneration: int8('listed_generation'),
});
