/**
 * A batch as the control plane describes it, and as a file carries it to a machine without a network. Both are read with the same
 * distrust: the form is checked here, and what it says is proven by the review.
 */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { maxBatchPayloads, maxLeaves, maxPageLeaves, maxReasonLength } from '../../domain/batch/limits.ts';
import { proposedByText } from '../../domain/batch/proposal.ts';
import { batchStates } from '../../domain/batch/states.ts';
import { ControlError } from '../../domain/errors.ts';

const hex32 = z.string().regex(/^[0-9a-f]{64}$/, 'is not 64 lower-case hex digits');
/** It stands in lines that people copy into a shell: nothing that a shell reads, and no flag. */
const batchId = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, 'is not 1 to 128 letters, digits, ".", "_" and "-"');
export const isBatchId = (value: unknown): value is string => batchId.safeParse(value).success;
/** A name of a person, a tenant, an agent: shown through the filter, and not endless. */
const name = z.string().max(512);
const instant = z.number().int().min(0).max(8.64e15);
const index = z.number().int().min(0).max(maxLeaves);
/** Canonical base64: one text for one value. */
const base64 = z.string().refine((text) => Buffer.from(text, 'base64').toString('base64') === text, 'is not canonical base64');

const leafShape = z.object({
  index,
  subject: z.string().max(1_024),
  kind: z.string().max(256),
  payloadSha256: z.union([hex32, z.literal('')]),
  payload: z.object({ typeUrl: z.string().max(512), value: base64 }).nullish(),
});

const batchShape = z.object({
  id: batchId,
  tenantId: name.default(''),
  state: z.enum(batchStates),
  /** Twice the bound of ours: what is longer is no reason, and what is a little longer is shown. */
  reason: z.string().max(4 * maxReasonLength),
  root: hex32,
  size: z.number().int().min(1).max(maxLeaves),
  notAfterMs: instant,
  trustDomain: z.string().regex(/^[a-z0-9._-]{1,255}$/, 'is no trust domain'),
  required: z.number().int().min(0).max(0xffff_ffff),
  createdBy: name.default(''),
  createdByAgent: name.nullish(),
  delegationId: name.nullish(),
  proposedBy: z.string().max(2_048).nullish(),
  approvals: z
    .array(z.object({ kid: hex32, at: instant }))
    .max(10_000)
    .default([]),
  waves: z.unknown().optional(),
  progress: z.unknown().optional(),
});

const pageShape = z.object({ leaves: z.array(leafShape).max(maxPageLeaves), next: index.nullable() });

const createdShape = z.object({
  batchId,
  held: z.boolean(),
  required: batchShape.shape.required,
  size: batchShape.shape.size,
  root: hex32,
});

export type BatchAnswer = z.output<typeof batchShape>;
export type LeafAnswer = z.output<typeof leafShape>;
export type PageAnswer = z.output<typeof pageShape>;

/** @throws INVALID_RESPONSE naming the field (BATCLI-008) */
function parse<S extends z.ZodType>(shape: S, value: unknown, what: string): z.output<S> {
  const read = shape.safeParse(value);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  const field = issue?.path.join('.') ?? '';
  throw new ControlError('INVALID_RESPONSE', `${what} is not usable: ${field === '' ? 'it' : field} ${issue?.message ?? 'is wrong'}`, {
    details: { reason: 'bad-answer', field },
  });
}

/** @throws INVALID_RESPONSE, also when another batch was answered than asked for */
export function parseBatch(value: unknown, batchId: string): BatchAnswer {
  const batch = parse(batchShape, value, 'the answer about the batch');
  if (batch.id === batchId) return batch;
  throw new ControlError('INVALID_RESPONSE', `batch ${batchId} was asked for, ${batch.id} was answered`, {
    details: { reason: 'other-batch' },
  });
}

/** @throws INVALID_RESPONSE naming the field */
export const parseCreated = (value: unknown): z.output<typeof createdShape> => parse(createdShape, value, 'the answer about the new batch');

export const parseBatches = (value: unknown): readonly BatchAnswer[] =>
  parse(z.object({ batches: z.array(batchShape).max(1_000) }), value, 'the list of batches').batches;

export const parsePage = (value: unknown): PageAnswer => parse(pageShape, value, 'the page of the scope');

/** The announcement of an agent's proposal; null for a person's. It is put together here where the parts are known. */
export function proposalOf({ createdByAgent, createdBy, delegationId, proposedBy }: BatchAnswer): string | null {
  if (createdByAgent) return proposedByText({ agent: createdByAgent, person: createdBy, delegationId: delegationId ?? '-' });
  return proposedBy ?? null;
}

const format = 'better-compute-batch';

/** What `batch show --export` writes: the answers of the control plane, unjudged. */
export interface BatchDocument {
  readonly batch: BatchAnswer;
  readonly leaves: readonly LeafAnswer[];
}

export const encodeDocument = ({ batch, leaves }: BatchDocument): string => `${JSON.stringify({ format, version: 1, batch, leaves })}\n`;

/** 50,000 leaves with all the payloads there may be, in base64, and room for the names. */
const longestDocument = 2 * maxBatchPayloads + maxLeaves * 1_400;

/**
 * @throws NOT_FOUND without the file, FRAME_TOO_LARGE before it is parsed, INVALID_INPUT for another kind of file,
 *   INVALID_RESPONSE for a document that does not read
 */
export function readDocument(path: string): BatchDocument {
  const text = readWhole(path);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw notOurs(path, cause);
  }
  const { format: found, version, batch, leaves } = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  if (found !== format || version !== 1) throw notOurs(path);
  const { id } = parse(z.object({ id: batchId }), batch, path);
  return { batch: parseBatch(batch, id), leaves: parse(z.array(leafShape).max(maxLeaves + 1), leaves, path) };
}

const notOurs = (path: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_INPUT', `${path} is no exported batch`, {
    details: { reason: 'not-a-document', hint: 'write one with: better-compute batch show ID --export FILE' },
    cause,
  });

function readWhole(path: string): string {
  try {
    const bytes = readFileSync(path);
    if (bytes.length <= longestDocument) return bytes.toString('utf8');
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `${path} cannot be read`, { details: { reason: 'no-file', path }, cause });
  }
  throw new ControlError('FRAME_TOO_LARGE', `${path} has more than ${longestDocument} bytes: no batch is that large`, {
    details: { reason: 'too-large', path },
  });
}
