/** The operator API's messages. Objects are strict: a field nobody knows is refused, never ignored. */
import { z } from 'zod';
import { batchWindow, judgeReason } from '../domain/batch/limits.ts';
import { maxNodeIdLength } from '../domain/commands/ids.ts';
import { commandKinds } from '../domain/commands/kinds.ts';
import { commandStates } from '../domain/commands/states.ts';
import { parseSecretReference } from '../domain/secrets/reference.ts';
import { specCredentialNames } from '../domain/secrets/spec-credentials.ts';
import { minute } from '../domain/time.ts';
import { waves } from './batch-schemas.ts';

const name = (what: string, max = 255) => z.string().min(1, `${what} is empty`).max(max, `${what} is longer than ${max} characters`);
const instant = z.number().describe('Unix milliseconds');
const keysOf = (table: object): [string, ...string[]] => Object.keys(table) as [string, ...string[]];

export const nodeId = name('the node id', maxNodeIdLength).regex(
  /^[A-Za-z0-9][A-Za-z0-9._-]*$/,
  'a node id holds letters, digits, ".", "_" and "-"',
);
export const actor = name('the actor', 128);
export const reason = name('the reason', 1_000).refine((text) => text.trim() !== '', 'the reason is empty');

export const digits = (max: number, byDefault: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().max(max))
    .default(byDefault);

export const page = z.strictObject({
  after: z.string().max(255).default(''),
  limit: digits(1_000, 100),
  state: z.enum(['active', 'quarantined', 'revoked', 'retired']).optional(),
});
export const auditPage = z.strictObject({
  after: digits(Number.MAX_SAFE_INTEGER, 0),
  limit: digits(1_000, 100),
  subject: z.string().max(255).optional(),
});
export const limited = z.strictObject({ limit: digits(1_000, 100) });

export const tokenRequest = z.strictObject({
  tenantId: name('the tenant', 63).default('default'),
  siteId: name('the site').default('default'),
  role: z.enum(['node', 'site']).default('node'),
  nodeId: nodeId.nullable().default(null),
  lifetimeMs: z
    .int()
    .min(minute, 'a token lives at least a minute')
    .max(7 * 24 * 60 * minute, 'a token lives at most 7 days')
    .default(60 * minute),
  actor,
});
export const createdToken = z.object({ tokenId: z.string(), token: z.string(), join: z.string().nullable(), expiresAt: instant });

export const revokeRequest = z.strictObject({ actor, reason });
export const credentialRequest = z.strictObject({
  name: z.enum(specCredentialNames),
  /** null: the machine gets none any more. */
  ref: z
    .string()
    .refine((text) => parseSecretReference(text) !== undefined, 'must be a reference: secret://…, vault://…#… or env://…')
    .nullable(),
  actor,
  reason,
});
export const started = z.object({ workflowId: z.string(), runId: z.string() });

export const commandsRequest = z.strictObject({
  /** Node ids, or every active node. */
  nodes: z.union([z.literal('all'), z.array(nodeId).min(1, 'no node is named').max(2_000, 'more than 2000 nodes are named: use "all"')]),
  kind: z.enum(keysOf(commandKinds)),
  payload: z.record(z.string(), z.unknown()).default({}),
  /** From now to the last moment the command may start on a machine. */
  deadlineMs: z
    .int()
    .min(1_000)
    .max(7 * 24 * 60 * minute)
    .optional(),
  actor,
  reason: reason.optional(),
  /** Its batch: the commands are held until that is approved. */
  batchId: z.string().min(1).max(128).optional(),
  /** The same key starts one workflow, however often the request is repeated. */
  idempotencyKey: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,64}$/, 'is 1 to 64 letters, digits, ".", "_" and "-"')
    .optional(),
});

export const rebootRequest = z.strictObject({
  nodes: commandsRequest.shape.nodes,
  actor,
  /** For the approvers, and for the log of each machine. */
  reason: z.string().superRefine((text, context) => {
    const fault = judgeReason(text);
    if (fault !== null) context.addIssue({ code: 'custom', message: fault.message });
  }),
  /** Between the acknowledgement and the reboot. */
  delaySeconds: z.int().min(0).max(3_600).optional(),
  /** Default: a tenth at a time, no failure tolerated, each wave back before the next. */
  waves: waves.optional(),
  /** How long it may wait for approvals and run. */
  windowMs: z
    .int()
    .min(batchWindow.minMs)
    .max(7 * 24 * 60 * minute)
    .optional(),
  idempotencyKey: commandsRequest.shape.idempotencyKey,
});

export const node = z.object({
  id: z.string(),
  siteId: z.string(),
  role: z.string(),
  state: z.string(),
  generation: z.int(),
  hostname: z.string(),
  createdAt: instant,
  connected: z.boolean(),
  session: z
    .object({
      gatewayId: z.string(),
      epoch: z.int(),
      startedAt: instant,
      lastSeenAt: instant,
      trustVersion: z.int().nullable(),
      daemonVersion: z.string(),
      specGeneration: z.int().nullable().describe('of the desired state that it holds'),
      sections: z
        .array(z.object({ section: z.string(), state: z.enum(['failed', 'unsupported']), detail: z.string() }))
        .readonly()
        .describe('of its desired state, what it says is not applied'),
    })
    .nullable(),
  lastSeenAt: instant.nullable().describe('by any session, also one that has ended'),
  certificate: z.object({ serial: z.string(), notAfter: instant, revokedAt: instant.nullable() }).nullable(),
  openCommands: z.int(),
});
export const nodes = z.object({ nodes: z.array(node), next: z.string().nullable() });

export const joinsPage = limited.extend({ state: z.enum(['waiting', 'approved', 'refused']).optional() });
export const join = z.object({
  id: z.string(),
  attestor: z.string(),
  role: z.string(),
  nodeId: z.string().nullable().describe('null: one that will be made'),
  siteId: z.string(),
  csrSha256: z.string().describe('of its request; bcd join prints how it begins'),
  hardware: z.record(z.string(), z.string()).describe('what the machine says of itself'),
  firstAskedAt: instant,
  lastAskedAt: instant,
  state: z.enum(['waiting', 'approved', 'refused']),
  decidedAt: instant.nullable(),
  decidedBy: z.string(),
  reason: z.string(),
});
export const joins = z.object({ joins: z.array(join) });
export const joinDecision = z.strictObject({ actor, reason });

export const command = z.object({
  id: z.string(),
  nodeId: z.string(),
  seq: z.int(),
  kind: z.string(),
  state: z.enum(keysOf(commandStates)),
  requestedBy: z.string(),
  createdAt: instant,
  deadline: instant,
  batchId: z.string().nullable(),
  /** Held until its batch is approved and released. */
  awaitingApproval: z.literal(true).optional(),
  /** When it is due; absent while it waits for an approval, and for one that is due at once. */
  notBefore: instant.optional(),
  ackedAt: instant.nullable(),
  finishedAt: instant.nullable(),
  rejectReason: z.string().nullable(),
  signerRoot: z.string(),
  /** What its node said last of how far it is; absent when it has said nothing. */
  progress: z.object({ done: z.int(), total: z.int(), note: z.string(), at: instant, firstDone: z.int(), firstAt: instant }).optional(),
  result: z
    .object({ outcome: z.int(), errorCode: z.string(), errorMessage: z.string(), payload: z.string().describe('base64') })
    .nullable(),
});
export const commands = z.object({ commands: z.array(command) });

export const stuck = z.object({
  stuck: z.array(
    z.object({
      kind: z.enum(['workflow', 'command', 'node', 'source']),
      subject: z.string(),
      since: instant.nullable(),
      waitsFor: z.string(),
      help: z.string(),
    }),
  ),
});

export const trust = z.object({
  version: z.int(),
  digest: z.string(),
  roots: z.array(z.string()).readonly(),
  publishedAt: instant,
  publishedBy: z.string(),
  connected: z.int(),
  behind: z.int(),
});

export const audit = z.object({
  events: z.array(
    z.object({
      seq: z.int(),
      at: instant,
      actor: z.string(),
      action: z.string(),
      subject: z.string(),
      details: z.unknown(),
      hash: z.string(),
    }),
  ),
});

export const rotations = z.object({
  rotations: z.array(z.object({ id: z.string(), stages: z.array(z.string()).readonly(), firstAt: instant, lastAt: instant })),
});
export const evidence = z.object({
  auditKey: z.string().describe('SPKI, base64'),
  documents: z.array(z.object({ document: z.string().describe('base64'), signature: z.string().describe('base64') })),
});

export const sshPage = z.strictObject({ node: nodeId.optional(), limit: digits(1_000, 100) });
export const sshCertificates = z.object({
  certificates: z.array(
    z.object({
      serial: z.string().describe('decimal digits: 63 bits'),
      nodeId: z.string(),
      account: z.string(),
      principal: z.string(),
      keyId: z.string(),
      publicKey: z.string().describe('fingerprint of the certified key'),
      issuedTo: z.string(),
      issuedAt: instant,
      validBefore: instant,
      revokedAt: instant.nullable(),
    }),
  ),
});

const kid = z.string().regex(/^[A-Za-z0-9_-]{43}$/, 'a key is named by its thumbprint, 43 characters of base64url');
export const workloadKeyOrder = z.strictObject({ kid, actor });
export const workloadKeyAdd = z.strictObject({ actor });
export const workloadKeyStep = z.object({ kid: z.string(), changed: z.boolean().describe('false: it was done before') });
export const workloadKeys = z.object({
  issuer: z.string(),
  keys: z.array(
    z.object({
      kid: z.string(),
      state: z.enum(['waiting', 'signing', 'former']),
      addedAt: instant,
      stoppedAt: instant.nullable(),
      promoteOpensAt: instant.nullable().describe('when it may sign; null for the one that does'),
      retireOpensAt: instant.nullable().describe('when it may be taken out; null while it signs'),
    }),
  ),
});
