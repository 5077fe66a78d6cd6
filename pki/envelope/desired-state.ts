/**
 * Desired state: one encoder for the writer, the gateway's fallback and the daemon's check (SPEC-002 to SPEC-010). Messages
 * are encoded field by field in number order, so two renderings of one state are the same bytes.
 */
import { createHash } from 'node:crypto';
import { create, fromJson, type JsonValue, toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import {
  type DesiredState,
  type DesiredStateBody,
  DesiredStateBodySchema,
  DesiredStateSchema,
  decodeMessage,
  encodeMessage,
  NodeSpecSchema,
  protocolRegistry,
  type Signature,
  SignatureSchema,
} from '../../proto/index.ts';
import { badSignature } from './envelope.ts';
import { type VerifiedSigner, verifyIntent } from './verify-intent.ts';
import { signDesiredState, type WorkerKey } from './worker-key.ts';

export interface DesiredStateInput {
  readonly nodeId: string;
  readonly generation: number | bigint;
  readonly trustDomain: string;
  /** An encoded NodeSpec. */
  readonly spec: Uint8Array;
}

/** What the writer stores: nodes.spec_body and nodes.spec_signature (SPEC-005). */
export interface StoredDesiredState {
  readonly body: Uint8Array;
  /** An encoded Signature. */
  readonly signature: Uint8Array;
}

/** Encodes a DesiredStateBody; the spec's hash is over its encoded bytes (SPEC-003). @throws ProtocolError above the bound */
export const encodeDesiredStateBody = ({ nodeId, generation, trustDomain, spec }: DesiredStateInput): Uint8Array =>
  encodeMessage(
    DesiredStateBodySchema,
    { nodeId, generation: BigInt(generation), trustDomain, spec, specSha256: sha256(spec) },
    'desiredStateBody',
  );

/** Encodes and signs a new generation (SPEC-002, SPEC-004). */
export async function storedDesiredState(worker: WorkerKey, input: DesiredStateInput): Promise<StoredDesiredState> {
  const body = encodeDesiredStateBody(input);
  return { body, signature: toBinary(SignatureSchema, await signDesiredState(worker, body)) };
}

/** The frame of stored bytes, relayed verbatim (SPEC-007). @throws ProtocolError when the stored signature does not decode */
export const desiredStateFromStored = ({ body, signature }: StoredDesiredState): DesiredState =>
  create(DesiredStateSchema, { body, signature: decodeMessage(SignatureSchema, signature, 'certificate') });

/**
 * The unsigned rendering from nodes.spec (SPEC-008): the bytes the writer would have made (SPEC-009).
 *
 * @param json a NodeSpec in protobuf JSON
 * @throws MALFORMED when the JSON is no NodeSpec
 */
export function desiredStateBodyFromJson(input: Omit<DesiredStateInput, 'spec'> & { readonly json: JsonValue }): Uint8Array {
  return encodeDesiredStateBody({ ...input, spec: nodeSpecFromJson(input.json) });
}

/** An encoded NodeSpec of its JSON form. @throws MALFORMED */
export function nodeSpecFromJson(json: JsonValue): Uint8Array {
  try {
    return toBinary(NodeSpecSchema, fromJson(NodeSpecSchema, json, { registry: protocolRegistry }));
  } catch (cause) {
    throw new ControlError('MALFORMED', 'the stored spec is not a NodeSpec', { cause, details: { reason: 'node-spec' } });
  }
}

export interface VerifyDesiredStateOptions {
  readonly roots: readonly Uint8Array[];
  readonly now: number;
  readonly nodeId: string;
  readonly required: boolean;
  readonly trustDomain?: string;
  readonly maxWorkerLifetimeMs?: number;
}

export interface VerifiedDesiredState {
  readonly body: DesiredStateBody;
  /** null for an unsigned rendering that was allowed. */
  readonly signer: VerifiedSigner | null;
}

/**
 * The daemon's check (SPEC-010).
 *
 * @throws BAD_SIGNATURE as verifyIntent; MALFORMED for a body that does not decode or whose hash is not its spec's;
 *   PERMISSION_DENIED (`wrong-node`, `wrong-trust-domain`) for another node's state
 */
export function verifyDesiredState(desired: DesiredState, options: VerifyDesiredStateOptions): VerifiedDesiredState {
  const { body: bytes, signature } = desired;
  const signer = verifyIntent({ ...options, purpose: 'desired-state', body: bytes, signature });
  const body = parseBody(bytes);
  assertSpecHash(body);
  assertAddressed(body, options);
  return { body, signer };
}

function parseBody(bytes: Uint8Array): DesiredStateBody {
  try {
    return decodeMessage(DesiredStateBodySchema, bytes, 'desiredStateBody');
  } catch (cause) {
    throw new ControlError('MALFORMED', 'the desired state does not decode', { cause, details: { reason: 'desired-state' } });
  }
}

function assertSpecHash({ spec, specSha256 }: DesiredStateBody): void {
  if (!Buffer.from(specSha256).equals(sha256(spec))) {
    throw new ControlError('MALFORMED', 'the desired state names another hash than that of its spec', { details: { reason: 'spec-hash' } });
  }
}

function assertAddressed(body: DesiredStateBody, { nodeId, trustDomain }: VerifyDesiredStateOptions): void {
  if (body.nodeId !== nodeId) {
    throw new ControlError('PERMISSION_DENIED', `the desired state is for node ${body.nodeId}, not ${nodeId}`, {
      details: { reason: 'wrong-node' },
    });
  }
  if (trustDomain !== undefined && body.trustDomain !== trustDomain) {
    throw new ControlError('PERMISSION_DENIED', `the desired state is of trust domain ${body.trustDomain}, not ${trustDomain}`, {
      details: { reason: 'wrong-trust-domain' },
    });
  }
}

const sha256 = (bytes: Uint8Array): Uint8Array => createHash('sha256').update(bytes).digest();

/** For callers that decode the signature themselves. @throws BAD_SIGNATURE when it does not decode */
export function parseSignature(bytes: Uint8Array): Signature {
  try {
    return decodeMessage(SignatureSchema, bytes, 'certificate');
  } catch (cause) {
    throw badSignature('malformed', 'the signature does not decode', cause);
  }
}
