import { boolean, integer, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { bytea, instantColumn, int8 } from './columns.ts';

export const machines = pgTable('machines', {
  id: text('id').primaryKey(),
  siteId: text('site_id').notNull(),
  rack: text('rack').notNull().default(''),
  state: text('state').notNull(),
  stateSince: instantColumn('state_since').notNull().defaultNow(),
  stateReason: text('state_reason').notNull().default(''),
  generation: int8('generation').notNull().default(1),
  manufacturer: text('manufacturer').notNull().default(''),
  model: text('model').notNull().default(''),
  memoryBytes: int8('memory_bytes').notNull().default(0),
  processors: integer('processors').notNull().default(0),
  profileName: text('profile_name').notNull().default(''),
  power: text('power').notNull().default('unknown'),
  powerAt: instantColumn('power_at'),
  inspectedAt: instantColumn('inspected_at'),
  createdAt: instantColumn('created_at').notNull().defaultNow(),
  createdBy: text('created_by').notNull(),
  updatedAt: instantColumn('updated_at').notNull().defaultNow(),
});

export const machineIdentities = pgTable(
  'machine_identities',
  {
    machineId: text('machine_id').notNull(),
    source: text('source').notNull(),
    value: text('value').notNull(),
    origin: text('origin').notNull(),
    firstSeenAt: instantColumn('first_seen_at').notNull(),
    lastSeenAt: instantColumn('last_seen_at').notNull(),
  },
  (table) => [primaryKey({ columns: [table.machineId, table.source, table.value] })],
);

export const machineBmcs = pgTable('machine_bmcs', {
  machineId: text('machine_id').primaryKey(),
  siteId: text('site_id').notNull(),
  address: text('address').notNull(),
  systemId: text('system_id').notNull().default(''),
  credentialRef: text('credential_ref').notNull(),
  pinSha256: text('pin_sha256'),
  profile: jsonb('profile').notNull().default({}),
  updatedAt: instantColumn('updated_at').notNull().defaultNow(),
});

export const machineDisks = pgTable(
  'machine_disks',
  {
    machineId: text('machine_id').notNull(),
    diskKey: text('disk_key').notNull(),
    name: text('name').notNull().default(''),
    serial: text('serial').notNull().default(''),
    wwn: text('wwn').notNull().default(''),
    model: text('model').notNull().default(''),
    sizeBytes: int8('size_bytes').notNull().default(0),
    transport: text('transport').notNull().default(''),
    rotational: boolean('rotational'),
    origin: text('origin').notNull(),
    seenAt: instantColumn('seen_at').notNull(),
  },
  (table) => [primaryKey({ columns: [table.machineId, table.diskKey] })],
);

export const metalRuns = pgTable('metal_runs', {
  id: text('id').primaryKey(),
  machineId: text('machine_id').notNull(),
  kind: text('kind').notNull(),
  workflowId: text('workflow_id').notNull(),
  workflowRunId: text('workflow_run_id').notNull().unique(),
  state: text('state').notNull().default('open'),
  remains: text('remains'),
  endReason: text('end_reason').notNull().default(''),
  machineState: text('machine_state').notNull(),
  actor: text('actor').notNull(),
  reason: text('reason').notNull().default(''),
  profile: jsonb('profile'),
  plan: jsonb('plan').notNull(),
  batchId: text('batch_id'),
  startedAt: instantColumn('started_at').notNull(),
  endedAt: instantColumn('ended_at'),
  endedBy: text('ended_by').notNull().default(''),
});

export const metalRunSteps = pgTable(
  'metal_run_steps',
  {
    runId: text('run_id').notNull(),
    step: text('step').notNull(),
    attempt: integer('attempt').notNull(),
    state: text('state').notNull(),
    detail: text('detail').notNull().default(''),
    actor: text('actor').notNull(),
    startedAt: instantColumn('started_at').notNull(),
    endedAt: instantColumn('ended_at'),
  },
  (table) => [primaryKey({ columns: [table.runId, table.step, table.attempt] })],
);

export const bootEntries = pgTable('boot_entries', {
  id: text('id').primaryKey(),
  runId: text('run_id').notNull(),
  nodeId: text('node_id').notNull(),
  attempt: integer('attempt').notNull(),
  tokenSha256: bytea('token_sha256').notNull(),
  bootNonce: bytea('boot_nonce').notNull(),
  createdAt: instantColumn('created_at').notNull(),
  expiresAt: instantColumn('expires_at').notNull(),
  usedAt: instantColumn('used_at'),
  usedCsrSha256: bytea('used_csr_sha256'),
  closedAt: instantColumn('closed_at'),
});

export const metalEvidence = pgTable('metal_evidence', {
  id: text('id').primaryKey(),
  runId: text('run_id').notNull(),
  nodeId: text('node_id').notNull(),
  commandId: text('command_id').notNull(),
  kind: text('kind').notNull(),
  body: bytea('body').notNull(),
  signature: bytea('signature').notNull(),
  bodySha256: bytea('body_sha256').notNull(),
  signerSerial: text('signer_serial').notNull(),
  complete: boolean('complete').notNull(),
  finishedAt: instantColumn('finished_at').notNull(),
  recordedAt: instantColumn('recorded_at').notNull(),
});

export const machineTombstones = pgTable(
  'machine_tombstones',
  {
    machineId: text('machine_id').notNull(),
    source: text('source').notNull(),
    value: text('value').notNull(),
    reason: text('reason').notNull(),
    createdAt: instantColumn('created_at').notNull(),
    createdBy: text('created_by').notNull(),
    liftedAt: instantColumn('lifted_at'),
    liftedBy: text('lifted_by'),
    liftReason: text('lift_reason'),
  },
  (table) => [primaryKey({ columns: [table.machineId, table.source, table.value] })],
);
