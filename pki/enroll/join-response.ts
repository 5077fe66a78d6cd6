/** The signed answer to a join (JOIN-023): bound to the request by its nonce and its CSR, so an old answer is never taken. */
import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import {
  bounds,
  decodeMessage,
  encodeMessage,
  type JoinResponse,
  type JoinResponseBody,
  JoinResponseBodySchema,
  JoinResponseSchema,
} from '../../proto/index.ts';
import { signEnvelope, verifyEnvelope } from '../envelope/index.ts';
import type { Signer } from '../x509/index.ts';

/**
 * @returns an encoded JoinResponse
 * @throws ProtocolError above the bound
 */
export async function signJoinResponse(signer: Signer, body: MessageInitShape<typeof JoinResponseBodySchema>): Promise<Uint8Array> {
  const bytes = encodeMessage(JoinResponseBodySchema, body, 'joinResponse');
  const signature = await signEnvelope(signer, 'join-response', [bytes]);
  return toBinary(JoinResponseSchema, create(JoinResponseSchema, { body: bytes, signature }));
}

export interface VerifyJoinResponseOptions {
  /** SPKI of the pinned JoinService key. */
  readonly joinKey: Uint8Array;
  /** The request's 32 bytes. */
  readonly nonce: Uint8Array;
  /** SHA-256 of the request's CSR. */
  readonly csrSha256: Uint8Array;
}

/**
 * @throws BAD_SIGNATURE when the pinned key did not sign it; MALFORMED when it does not decode or has no outcome;
 *   REPLAYED when it answers another request
 */
export function verifyJoinResponse(response: Uint8Array | JoinResponse, options: VerifyJoinResponseOptions): JoinResponseBody {
  const { body: bytes, signature } = response instanceof Uint8Array ? decode(JoinResponseSchema, response) : response;
  verifyEnvelope({ signature, purpose: 'join-response', parts: [bytes], key: options.joinKey }); // 1. the pinned key
  const body = decode(JoinResponseBodySchema, bytes);
  assertAnswers(body, options); //                                                               2. this request
  assertOutcome(body); //                                                                        3. says something
  return body;
}

function assertAnswers({ nonce, csrSha256 }: JoinResponseBody, expected: VerifyJoinResponseOptions): void {
  if (same(nonce, expected.nonce) && same(csrSha256, expected.csrSha256)) return;
  throw new ControlError('REPLAYED', 'the join answer belongs to another request', { details: { reason: 'join-answer' } });
}

function assertOutcome({ outcome }: JoinResponseBody): void {
  if (outcome.case === undefined)
    throw new ControlError('MALFORMED', 'the join answer neither grants nor defers', { details: { reason: 'join-outcome' } });
  if (outcome.case === 'granted' && (outcome.value.chain.length === 0 || outcome.value.chain.length > bounds.certificateChainLength)) {
    throw new ControlError('MALFORMED', `the join answer carries ${outcome.value.chain.length} certificates`, {
      details: { reason: 'join-chain' },
    });
  }
}

function decode<S extends typeof JoinResponseSchema | typeof JoinResponseBodySchema>(
  schema: S,
  bytes: Uint8Array,
): ReturnType<typeof decodeMessage<S>> {
  try {
    return decodeMessage(schema, bytes, 'joinResponse');
  } catch (cause) {
    throw new ControlError('MALFORMED', `the ${schema.name} does not decode`, { cause, details: { reason: 'join-response' } });
  }
}

const same = (a: Uint8Array, b: Uint8Array): boolean => a.length > 0 && Buffer.from(a).equals(b);
