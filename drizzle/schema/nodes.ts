import { integer, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const sites = pgTable('sites', {
  id: text('id').primaryKey(),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
});

export const nodes = pgTable('nodes', {
  id: text('id').primaryKey(),
  siteId: text('site_id').notNull(),
  role: text('role').notNull(),
  state: text('state').notNull().default('active'),
  identityGeneration: int8('identity_generation').notNull().default(1),
  hostname: text('hostname').notNull().default(''),
  hardware: jsonb('hardware').notNull().default({}),
  labels: jsonb('labels').notNull().default({}),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
  updatedAt: instantColumn('updated_at').notNull().defaultNow(),
  spec: jsonb('spec').notNull().default({}),
  generation: int8('generation').notNull().default(0),
  specBody: bytea('spec_body'),
  specSignature: bytea('spec_signature'),
  specSignerRoot: text('spec_signer_root'),
  specSignerNotAfter: instantColumn('spec_signer_not_after'),
  tenantId: text('tenant_id').notNull().default('default'),
});

export const nodeCerts = pgTable(
  'node_certs',
  {
    issuer: text('issuer').notNull(),
    serial: text('serial').notNull(),
    nodeId: text('node_id').notNull(),
    siteId: text('site_id').notNull(),
    spiffeId: text('spiffe_id').notNull(),
    role: text('role').notNull(),
    generation: int8('generation').notNull(),
    uriSans: text('uri_sans').array().notNull().default([]),
    spkiSha256: bytea('spki_sha256').notNull(),
    certDer: bytea('cert_der'),
    notBefore: instantColumn('not_before').notNull(),
    notAfter: instantColumn('not_after').notNull(),
    reservedAt: instantColumn('reserved_at').notNull().defaultNow(),
    issuedAt: instantColumn('issued_at'),
    revokedAt: instantColumn('revoked_at'),
    revokeReason: text('revoke_reason'),
    revocationSeq: int8('revocation_seq'),
  },
  (table) => [primaryKey({ columns: [table.issuer, table.serial] })],
);

export const revocationCounter = pgTable('revocation_counter', {
  id: integer('id').primaryKey(),
  seq: int8('seq').notNull(),
});
