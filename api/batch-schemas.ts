/** The messages of the batch and tenant routes. What a field may say is judged by the service, leaf by leaf; here only its form. */
import { z } from 'zod';
import { maxPageLeaves } from '../domain/batch/limits.ts';
import { batchStates } from '../domain/batch/states.ts';

const instant = z.number().describe('Unix milliseconds');
const hash = z.string().regex(/^[0-9a-f]{64}$/, 'is 64 lower-case hex digits');
const base64 = z.string().refine((text) => Buffer.from(text, 'base64').toString('base64') === text, 'is base64 (RFC 4648, padded)');
const shortText = z.string().min(1).max(128);

/** It stands in a sentence that approvers read: nothing in it ends that sentence, or begins another. */
const plainName = z.string().regex(/^[!-'*-~]{1,128}$/, 'is 1 to 128 printable ASCII characters without a space or a parenthesis');

const leaf = z.strictObject({
  subject: z.string().max(1_024),
  kind: z.string().max(256),
  payloadSha256: hash.optional(),
  payload: z.strictObject({ typeUrl: z.string().max(512), value: base64 }).optional(),
});

export const waves = z.strictObject({
  size: z.int().optional(),
  percent: z.int().optional(),
  maxFailures: z.int(),
  maxPerLabel: z.strictObject({ label: z.string().max(256), count: z.int() }).optional(),
  pauseMs: z.int(),
  healthGate: z.boolean(),
});

/** What only the holder of the operator token may say in a field: an identity provider says it in the token. */
const actor = shortText.optional();

export const createBatch = z.strictObject({
  tenantId: shortText.default('default'),
  reason: z.string().max(4_096),
  scope: z.array(leaf),
  notAfterSeconds: z.int().optional(),
  idempotencyKey: z.string().max(256).optional(),
  waves: waves.optional(),
  actor,
  agent: z.strictObject({ name: plainName, delegationId: plainName }).optional(),
});
export type CreateBatchBody = z.output<typeof createBatch>;

export const createdBatch = z.object({
  batchId: z.string(),
  held: z.boolean(),
  required: z.int(),
  size: z.int(),
  root: z.string(),
  created: z.boolean().describe('false: the same request was made before'),
});

export const batch = z.object({
  id: z.string(),
  tenantId: z.string(),
  state: z.enum(batchStates),
  reason: z.string(),
  root: z.string().describe('hex'),
  size: z.int(),
  notAfterMs: instant,
  trustDomain: z.string(),
  required: z.int(),
  createdBy: z.string(),
  createdAt: instant,
  proposedBy: z.string().optional().describe('for the proposal of an agent'),
  approvals: z.array(z.object({ kid: z.string(), at: instant })).readonly(),
  approvedAt: instant.nullable(),
  closedAt: instant.nullable(),
  closedBy: z.string(),
  closeReason: z.string(),
  waves: z.unknown(),
  progress: z
    .object({
      members: z.int(),
      held: z.int(),
      running: z.int(),
      failed: z.int(),
      unhealthy: z.int(),
      lastEndedAt: instant.nullable(),
      states: z.record(z.string(), z.int()),
      isDone: z.boolean(),
    })
    .optional(),
});
export const batches = z.object({ batches: z.array(batch), next: z.string().nullable() });

const whole = (pattern: RegExp, byDefault: number) =>
  z.string().regex(pattern, 'must be a whole number').transform(Number).default(byDefault);

export const batchPage = z.strictObject({
  after: z.string().max(128).default(''),
  limit: whole(/^\d{1,4}$/, 100).pipe(z.number().min(1).max(1_000)),
  state: z.enum(batchStates).optional(),
});
export const scopePageQuery = z.strictObject({
  after: whole(/^(-1|\d{1,6})$/, -1),
  limit: whole(/^\d{1,4}$/, maxPageLeaves).pipe(z.number().min(1).max(maxPageLeaves)),
});
export const scopePage = z.object({
  leaves: z.array(
    z.object({
      index: z.int(),
      subject: z.string(),
      kind: z.string(),
      payloadSha256: z.string().describe('hex; empty: any payload'),
      payload: z.object({ typeUrl: z.string(), value: z.string().describe('base64') }).optional(),
    }),
  ),
  next: z.int().nullable(),
});

export const approval = z.strictObject({
  kid: z.string().max(128),
  sig: z.string().regex(/^[A-Za-z0-9_-]{86}$/, 'is 64 bytes in base64url'),
  actor,
});
export const recordedApproval = z.object({
  kind: z.enum(['recorded', 'already']),
  kid: z.string(),
  have: z.int(),
  required: z.int(),
  released: z.boolean().describe('the batch is approved'),
});
export const batchWords = z.strictObject({ actor, reason: z.string().min(1).max(500) });
export const endedBatch = z.object({ changed: z.boolean(), cancelled: z.int() });

export const tenantRequest = z.strictObject({ id: z.string().max(128), actor: shortText });
export const tenantWords = z.strictObject({ actor: shortText });
export const tenant = z.object({ id: z.string(), createdAt: instant, deletedAt: instant.nullable(), nodes: z.int() });
export const tenants = z.object({ tenants: z.array(tenant) });
export const createdTenant = z.object({ id: z.string() });
export const deletedTenant = z.object({ id: z.string(), cancelledBatches: z.array(z.string()).readonly() });
