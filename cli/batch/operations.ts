/**
 * What the leaves of a batch would do, decoded for a person (BATCLI-021 to BATCLI-028). The kind alone says of which type a payload is; the
 * label beside it is the server's word and decides nothing. A payload is decoded only if encoding it again gives the same bytes: what
 * this build does not understand of it, it will not show as understood.
 */
import { createHash } from 'node:crypto';
import { type DescMessage, type JsonValue, toBinary, toJson } from '@bufbuild/protobuf';
import { maxLeafPayload } from '../../domain/batch/limits.ts';
import { findCommandKind } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import { decodeMessage, protocolRegistry } from '../../proto/index.ts';
import { scopeMismatch } from './collect.ts';
import type { LeafAnswer } from './document.ts';
import { shown } from './printable.ts';

/** How much of an operation can be read: all of it; nothing, because its kind or its bytes are not known here; or it may be anything. */
export type Form = 'decoded' | 'opaque' | 'any-payload';

export interface Operation {
  readonly kind: string;
  /** Lower-case hex; empty for any payload. */
  readonly payloadSha256: string;
  readonly form: Form;
  /** The fields of a decoded payload; null otherwise. */
  readonly fields: JsonValue | null;
  /** Why it is opaque; empty otherwise. */
  readonly why: string;
  /** Base64, as the server gave it; null when it gave none. */
  readonly bytes: string | null;
  readonly subjects: readonly string[];
}

/** The message that payloads of a kind are; undefined for a kind that this build does not know. */
const schemaOf = (kind: string): DescMessage | undefined => {
  const spec = findCommandKind(kind);
  return spec === undefined ? undefined : protocolRegistry.getMessage(spec.payload);
};

/**
 * The distinct operations, each with its subjects, in the order in which they are first listed.
 *
 * @throws SCOPE_MISMATCH for a payload that is not the one of its digest; INVALID_RESPONSE for one that has no business there;
 *   INVALID_STATE (`payload-unknown-fields`) for one that this build cannot show whole
 */
export function operationsOf(leaves: readonly LeafAnswer[]): readonly Operation[] {
  const found = new Map<string, { leaf: LeafAnswer; subjects: string[] }>();
  for (const leaf of leaves) {
    assertPayload(leaf);
    const key = `${leaf.kind} ${leaf.payloadSha256}`;
    const known = found.get(key);
    if (known === undefined) found.set(key, { leaf, subjects: [leaf.subject] });
    else {
      known.subjects.push(leaf.subject);
      if (known.leaf.payload == null) known.leaf = leaf;
    }
  }
  return [...found.values()].map(({ leaf, subjects }) => ({ ...readOperation(leaf), subjects }));
}

/** The bytes that are shown are the bytes that are signed. */
function assertPayload({ subject, kind, payload, payloadSha256 }: LeafAnswer): void {
  if (payload == null) return;
  const about = `${shown(kind)} on ${shown(subject)}`;
  const bytes = Buffer.from(payload.value, 'base64');
  if (payloadSha256 === '') throw misplaced('payload-of-unbound-leaf', `${about} admits any payload and shows one`);
  if (bytes.length > maxLeafPayload)
    throw misplaced('payload-too-large', `the payload of ${about} has ${bytes.length} bytes, at most ${maxLeafPayload}`);
  const digest = createHash('sha256').update(bytes).digest('hex');
  if (digest !== payloadSha256)
    throw scopeMismatch(`the payload that is shown for ${about} has the digest ${digest.slice(0, 12)}, not ${payloadSha256.slice(0, 12)}`);
}

const misplaced = (reason: string, message: string): ControlError<'INVALID_RESPONSE'> =>
  new ControlError('INVALID_RESPONSE', message, { details: { reason } });

function readOperation({ subject, kind, payload, payloadSha256 }: LeafAnswer): Omit<Operation, 'subjects'> {
  const operation = { kind, payloadSha256, bytes: payload?.value ?? null };
  const opaque = (why: string): Omit<Operation, 'subjects'> => ({ ...operation, form: 'opaque', fields: null, why });
  if (payloadSha256 === '') return { ...operation, form: 'any-payload', fields: null, why: '' };
  if (payload == null) return opaque('the batch holds its digest alone');
  const schema = schemaOf(kind);
  if (schema === undefined) return opaque('this program does not know the kind');
  if (payload.typeUrl !== `type.googleapis.com/${schema.typeName}`)
    throw misplaced(
      'payload-type',
      `the payload of ${shown(kind)} on ${shown(subject)} is labelled ${shown(payload.typeUrl)}, not ${schema.typeName}`,
    );
  return { ...operation, form: 'decoded', fields: decodeWhole(schema, Buffer.from(payload.value, 'base64'), { subject, kind }), why: '' };
}

function decodeWhole(schema: DescMessage, bytes: Uint8Array, { subject, kind }: { subject: string; kind: string }): JsonValue {
  const refuse = (what: string, cause?: unknown): ControlError =>
    new ControlError('INVALID_STATE', `the payload of ${shown(kind)} on ${shown(subject)} ${what}: nobody could say what is signed`, {
      details: { reason: 'payload-unknown-fields', hint: 'approve it with a newer better-compute, or ask for a batch without it' },
      cause,
    });
  let message: ReturnType<typeof decodeMessage>;
  try {
    message = decodeMessage(schema, bytes, 'leafPayload');
  } catch (cause) {
    throw refuse('does not decode', cause);
  }
  if (!Buffer.from(toBinary(schema, message, { writeUnknownFields: false })).equals(bytes))
    throw refuse('holds more than this program can show');
  return toJson(schema, message, { registry: protocolRegistry, alwaysEmitImplicit: true });
}

/** `reason: "kernel", delaySeconds: 0`: every field by its name, long values cut in their middle. */
export function fieldsText(fields: JsonValue | null): string {
  if (typeof fields !== 'object' || fields === null || Array.isArray(fields)) return valueText(fields);
  const parts = Object.entries(fields).map(([name, value]) => `${shown(name)}: ${valueText(value)}`);
  return parts.length === 0 ? '(no fields)' : parts.join(', ');
}

function valueText(value: JsonValue | undefined): string {
  if (typeof value === 'string') return `"${shown(value).replaceAll('"', '\\"')}"`;
  if (Array.isArray(value)) return `[${value.map(valueText).join(', ')}]`;
  if (typeof value === 'object' && value !== null) return `{${fieldsText(value)}}`;
  return String(value);
}

/** Every text in a payload: what could pass for something else is looked for in each. */
export function textsIn(value: JsonValue | null): readonly string[] {
  if (typeof value === 'string') return [value];
  if (Array.isArray(value)) return value.flatMap(textsIn);
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap((one) => textsIn(one ?? null)) : [];
}

/** The file of --operations-out: everything in full, as JSON. */
export const operationsDocument = (operations: readonly Operation[]): unknown =>
  operations.map(({ kind, payloadSha256, form, fields, why, bytes, subjects }) => ({
    kind,
    payloadSha256,
    form,
    ...(why === '' ? {} : { why }),
    ...(fields === null ? {} : { payload: fields }),
    ...(bytes === null ? {} : { bytesBase64: bytes }),
    subjects,
  }));
