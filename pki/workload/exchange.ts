/**
 * How a host gets the token of an instance it runs (WID-022 to WID-025, WID-029 to WID-036): it asks over its session, signed by
 * its node key, and the answer is sealed to a key that it made for this one question.
 *
 *   request   WorkloadTokenRequest, node_sig = purpose workload-token over (request_id, instance_id, audience, epk)
 *   answer    WorkloadTokenResponse, jwe = compact JWE of the token to epk, typ bcworkload+jwe;
 *             protected header members: bc_request, bc_instance, exp (Unix seconds)
 *
 * Threat model: the gateway between the two may read, hold back, repeat and mix up both. It learns no token (it lacks the private half
 * of epk), cannot ask in the name of a node, and cannot pass the answer to one request, instance or time as that to another. A box
 * says nothing about who sealed it, so a gateway can hand a host a text of its own; whoever relies on a token checks its issuer.
 */
import { type KeyObject, randomUUID } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { isWorkloadError, type WorkloadError, workloadErrors } from '../../domain/workload/errors.ts';
import {
  encodeMessage,
  type WorkloadTokenRequest,
  WorkloadTokenRequestSchema,
  type WorkloadTokenResponse,
  WorkloadTokenResponseSchema,
} from '../../proto/index.ts';
import { signEnvelope, verifyEnvelope } from '../envelope/index.ts';
import {
  assertAnswers,
  assertOwnKeyUnused,
  assertQuestionIds,
  createAnswerKey,
  decodeQuestion,
  malformedQuestion,
} from '../envelope/question.ts';
import { openJwe, sealJwe } from '../jose/index.ts';
import type { Signer } from '../x509/index.ts';
import { isWorkloadId } from './claims.ts';

const boxType = 'bcworkload+jwe';
const what = 'workload token request';
const audiencePattern = /^[\x21-\x7e]{0,256}$/;

/** Whether a question may name this audience; empty is the issuer's default. */
export const isTokenAudience = (text: string): boolean => audiencePattern.test(text);

/** What a host keeps until its answer comes. */
export interface PendingWorkloadToken {
  readonly request: WorkloadTokenRequest;
  /** Used once; forget it with the answer. */
  readonly privateKey: KeyObject;
}

export interface WorkloadQuestion {
  readonly requestId: string;
  readonly instanceId: string;
  /** Empty: the issuer's default. */
  readonly audience: string;
  /** SPKI of the key that the answer is sealed to. */
  readonly epk: Uint8Array;
}

const partsOf = ({ requestId, instanceId, audience, epk }: WorkloadQuestion): (Uint8Array | string)[] => [
  requestId,
  instanceId,
  audience,
  epk,
];

const boundMembers = ({ requestId, instanceId }: Pick<WorkloadQuestion, 'requestId' | 'instanceId'>, expiresAt: number) => ({
  bc_request: requestId,
  bc_instance: instanceId,
  exp: expiresAt / second,
});

/** The host's question, under a key that nobody has used (WID-031). @param signer the node's key */
export async function createWorkloadTokenRequest(options: {
  readonly signer: Signer;
  readonly instanceId: string;
  readonly audience?: string;
  readonly requestId?: string;
}): Promise<PendingWorkloadToken> {
  const { signer, instanceId, audience = '', requestId = randomUUID() } = options;
  const { epk, privateKey } = createAnswerKey();
  const question = { requestId, instanceId, audience, epk };
  assertQuestion(question);
  const nodeSig = await signEnvelope(signer, 'workload-token', partsOf(question));
  return { request: create(WorkloadTokenRequestSchema, { ...question, nodeSig }), privateKey };
}

/**
 * Reads a question at the broker.
 *
 * @param nodeKey SPKI of the certificate that the asking session proved
 * @throws FRAME_TOO_LARGE, MALFORMED (naming the field), BAD_SIGNATURE when that key did not sign exactly these fields (WID-032)
 */
export function openWorkloadTokenRequest(bytes: Uint8Array, { nodeKey }: { readonly nodeKey: Uint8Array }): WorkloadQuestion {
  const decoded = decodeQuestion(WorkloadTokenRequestSchema, bytes, { bound: 'workloadTokenRequest', what }); // 1. size, protobuf
  const { requestId, instanceId, audience, epk, nodeSig } = decoded;
  const question = Object.freeze({ requestId, instanceId, audience, epk: Uint8Array.from(epk) });
  assertQuestion(question); //                                                                          2. the fields' shapes
  assertOwnKeyUnused(epk, nodeKey, what); //                                                            3. a key for this alone
  verifyEnvelope({ signature: nodeSig, purpose: 'workload-token', parts: partsOf(question), key: nodeKey }); // 4. the node asks this
  return question;
}

/** @throws MALFORMED naming the field */
function assertQuestion(question: WorkloadQuestion): void {
  assertQuestionIds(question, what);
  if (!isWorkloadId(question.instanceId)) throw malformedQuestion(what, { field: 'instance_id', why: 'is no instance id' });
  if (!isTokenAudience(question.audience))
    throw malformedQuestion(what, { field: 'audience', why: 'is not at most 256 printable characters' });
}

/**
 * The broker's answer: the token, for the asker alone (WID-023, WID-035).
 *
 * @param expiresAt the end of the token, Unix milliseconds in whole seconds
 */
export function sealWorkloadTokenResponse(
  question: WorkloadQuestion,
  { token, expiresAt }: { readonly token: string; readonly expiresAt: number },
): Uint8Array {
  const jwe = sealJwe({
    recipient: question.epk,
    plaintext: Buffer.from(token, 'utf8'),
    typ: boxType,
    bind: boundMembers(question, expiresAt),
  });
  return answer({ requestId: question.requestId, jwe, expiresAt: BigInt(expiresAt) });
}

/** The broker's refusal, by one of the closed words (WID-036). */
export const refuseWorkloadTokenRequest = (requestId: string, error: WorkloadError): Uint8Array => answer({ requestId, error });

const answer = (value: Partial<Pick<WorkloadTokenResponse, 'requestId' | 'jwe' | 'expiresAt' | 'error'>>): Uint8Array =>
  encodeMessage(WorkloadTokenResponseSchema, value, 'workloadTokenResponse');

/**
 * Opens the answer at the host (WID-039).
 *
 * @throws what the broker's word stands for (details.reason is the word); PERMISSION_DENIED for the answer to another request or a box
 *   that is bound to something else; UNAUTHENTICATED when it is over (`expired`), changed, or sealed to another key; MALFORMED
 */
export function openWorkloadTokenResponse(
  response: WorkloadTokenResponse,
  { pending, now }: { readonly pending: PendingWorkloadToken; readonly now: number },
): { readonly token: string; readonly expiresAt: number } {
  const { request, privateKey } = pending;
  assertAnswers(response, { requestId: request.requestId, holds: 'a token' });
  if (response.error !== '') throw refusedBy(response.error);
  const expiresAt = Number(response.expiresAt);
  if (!(expiresAt > now)) throw new ControlError('UNAUTHENTICATED', 'the answer is over', { details: { reason: 'expired', expiresAt } });
  const { plaintext } = openJwe(response.jwe, { privateKey, typ: boxType, bind: boundMembers(request, expiresAt) });
  return { token: Buffer.from(plaintext).toString('utf8'), expiresAt };
}

/** A word of a newer broker is as good as none: nothing can be had now. */
function refusedBy(error: string): ControlError {
  const word = isWorkloadError(error) ? error : 'unavailable';
  const { code, summary } = workloadErrors[word];
  return new ControlError(code, `the broker refused the workload token (${word}): ${summary}`, { details: { reason: word } });
}
