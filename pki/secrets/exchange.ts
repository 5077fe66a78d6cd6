/**
 * How a machine gets a secret that its command names (SEC-002 to SEC-016): it asks over its session, signed by its node key, and the
 * answer is sealed to a key that it made for this one question.
 *
 *   request   SecretRequest, node_sig = purpose secret-request over (ref, workflow_id, step_id, allocation_id, epk, request_id)
 *   answer    SecretResponse, jwe = compact JWE of the secret to epk, typ bcsecret+jwe;
 *             protected header members: bc_ref, bc_request, exp (Unix seconds)
 *
 * Threat model: as of the workload token's exchange (pki/workload/exchange.ts). The gateway between learns no secret, cannot ask in the
 * name of a node, and cannot pass one answer off as another. A box says nothing about who sealed it: a gateway can hand a machine bytes
 * of its own in place of the secret, and does harm by it only as far as a wrong password does.
 */
import { type KeyObject, randomUUID } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { type BindingTexts, maxBindingLength } from '../../domain/secrets/binding.ts';
import { isSecretError, type SecretError, secretErrors } from '../../domain/secrets/errors.ts';
import { maxReferenceLength } from '../../domain/secrets/reference.ts';
import { second } from '../../domain/time.ts';
import { encodeMessage, type SecretRequest, SecretRequestSchema, type SecretResponse, SecretResponseSchema } from '../../proto/index.ts';
import { signEnvelope, verifyEnvelope } from '../envelope/index.ts';
import {
  assertAnswers,
  assertOwnKeyUnused,
  assertQuestionIds,
  createAnswerKey,
  decodeQuestion,
  malformedQuestion,
} from '../envelope/question.ts';
import { openJwe, readJweHeader, sealJwe } from '../jose/index.ts';
import type { Signer } from '../x509/index.ts';

const boxType = 'bcsecret+jwe';
const what = 'secret request';
const refPattern = new RegExp(`^[\\x21-\\x7e]{1,${maxReferenceLength}}$`);
const bindingPattern = new RegExp(`^[\\x21-\\x7e]{0,${maxBindingLength}}$`);

/** What a machine keeps until its answer comes. */
export interface PendingSecret {
  readonly request: SecretRequest;
  /** Used once; forget it with the answer. */
  readonly privateKey: KeyObject;
}

export interface SecretQuestion extends BindingTexts {
  readonly requestId: string;
  readonly ref: string;
  /** SPKI of the key that the answer is sealed to. */
  readonly epk: Uint8Array;
}

/** In the order of the registry of purposes. */
const partsOf = ({ ref, workflowId, stepId, allocationId, epk, requestId }: SecretQuestion): (Uint8Array | string)[] => [
  ref,
  workflowId,
  stepId,
  allocationId,
  epk,
  requestId,
];

const boundMembers = ({ ref, requestId }: Pick<SecretQuestion, 'ref' | 'requestId'>, exp: number) => ({
  bc_ref: ref,
  bc_request: requestId,
  exp,
});

/** The machine's question, under a key that nobody has used (SEC-003). @param signer the node's key */
export async function createSecretRequest(options: {
  readonly signer: Signer;
  readonly ref: string;
  readonly workflowId: string;
  readonly stepId: string;
  readonly allocationId?: string;
  readonly requestId?: string;
}): Promise<PendingSecret> {
  const { signer, ref, workflowId, stepId, allocationId = '', requestId = randomUUID() } = options;
  const { epk, privateKey } = createAnswerKey();
  const question = { ref, workflowId, stepId, allocationId, epk, requestId };
  assertQuestion(question);
  const nodeSig = await signEnvelope(signer, 'secret-request', partsOf(question));
  return { request: create(SecretRequestSchema, { ...question, nodeSig }), privateKey };
}

/**
 * Reads a question at the broker.
 *
 * @param nodeKey SPKI of the certificate that the asking session proved
 * @throws FRAME_TOO_LARGE, MALFORMED (naming the field), BAD_SIGNATURE when that key did not sign exactly these fields (SEC-004)
 */
export function openSecretRequest(bytes: Uint8Array, { nodeKey }: { readonly nodeKey: Uint8Array }): SecretQuestion {
  const decoded = decodeQuestion(SecretRequestSchema, bytes, { bound: 'secretRequest', what }); //           1. size, protobuf
  const { requestId, ref, workflowId, stepId, allocationId, epk, nodeSig } = decoded;
  const question = Object.freeze({ requestId, ref, workflowId, stepId, allocationId, epk: Uint8Array.from(epk) });
  assertQuestion(question); //                                                                              2. the fields' shapes
  assertOwnKeyUnused(epk, nodeKey, what); //                                                                3. a key for this alone
  verifyEnvelope({ signature: nodeSig, purpose: 'secret-request', parts: partsOf(question), key: nodeKey }); // 4. the node asks this
  return question;
}

/** @throws MALFORMED naming the field */
function assertQuestion(question: SecretQuestion): void {
  assertQuestionIds(question, what);
  if (!refPattern.test(question.ref))
    throw malformedQuestion(what, { field: 'ref', why: `is not 1 to ${maxReferenceLength} printable characters` });
  for (const [field, text] of [
    ['workflow_id', question.workflowId],
    ['step_id', question.stepId],
    ['allocation_id', question.allocationId],
  ] as const)
    if (!bindingPattern.test(text))
      throw malformedQuestion(what, { field, why: `is not at most ${maxBindingLength} printable characters` });
}

/**
 * The broker's answer: the secret, for the asker alone (SEC-008, SEC-010, SEC-013, SEC-014).
 *
 * @param expiresAt after which the asker takes it no more, Unix milliseconds in whole seconds (SEC-015)
 */
export function sealSecretResponse(
  question: SecretQuestion,
  { value, expiresAt }: { readonly value: Uint8Array; readonly expiresAt: number },
): Uint8Array {
  const bind = boundMembers(question, expiresAt / second);
  const jwe = sealJwe({ recipient: question.epk, plaintext: value, typ: boxType, bind });
  return encodeMessage(SecretResponseSchema, { requestId: question.requestId, jwe }, 'secretResponse');
}

/** The broker's refusal, by one of the closed words (SEC-009). */
export const refuseSecretRequest = (requestId: string, error: SecretError): Uint8Array =>
  encodeMessage(SecretResponseSchema, { requestId, error }, 'secretResponse');

/**
 * Opens the answer at the machine (SEC-012 to SEC-016).
 *
 * @throws what the broker's word stands for (details.reason is the word, which the message holds too); PERMISSION_DENIED for the answer to
 *   another request or a box that is bound to something else; UNAUTHENTICATED when it is over (`expired`), changed, or sealed to another
 *   key; MALFORMED
 */
export function openSecretResponse(
  response: SecretResponse,
  { pending, now }: { readonly pending: PendingSecret; readonly now: number },
): Uint8Array {
  const { request, privateKey } = pending;
  assertAnswers(response, { requestId: request.requestId, holds: 'a secret' });
  if (response.error !== '') throw refusedBy(response.error, request.ref);
  const exp = readExpiry(response.jwe);
  const { plaintext } = openJwe(response.jwe, { privateKey, typ: boxType, bind: boundMembers(request, exp) });
  // The header is authenticated now, and its end with it.
  if (exp * second > now) return plaintext;
  throw new ControlError('UNAUTHENTICATED', 'the answer is over', { details: { reason: 'expired', expiresAt: exp * second } });
}

/** Nothing is believed of it before the box has opened under this very header. */
function readExpiry(jwe: string): number {
  const exp = readJweHeader(jwe)['exp'];
  if (typeof exp === 'number' && Number.isSafeInteger(exp) && exp >= 0) return exp;
  throw new ControlError('MALFORMED', 'the answer names no end', { details: { reason: 'answer' } });
}

/** A word of a newer broker is as good as none: nothing can be had now. */
function refusedBy(error: string, ref: string): ControlError {
  const word = isSecretError(error) ? error : 'unavailable';
  const { code, summary } = secretErrors[word];
  return new ControlError(code, `the broker refused ${ref} (${word}): ${summary}`, { details: { reason: word, ref } });
}
