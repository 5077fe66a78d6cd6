/**
 * What a machine's questions to a broker have in common (WID-029 to WID-034, SEC-002 to SEC-005, SEC-014): a key that was made for the
 * one question, an id that the answer repeats, and an answer that holds either a box or a word.
 */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import type { DescMessage, MessageShape } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { type Bound, decodeMessage, ProtocolError } from '../../proto/index.ts';
import { parseP256Spki, spkiOf } from '../x509/index.ts';

const requestIdPattern = /^[\x21-\x7e]{1,64}$/;

/** A key that nobody has used: its SPKI goes with the question, the private half is forgotten with the answer. */
export function createAnswerKey(): { readonly epk: Uint8Array; readonly privateKey: KeyObject } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { epk: spkiOf(publicKey), privateKey };
}

interface QuestionFault {
  readonly field: string;
  readonly why: string;
  readonly cause?: unknown;
}

/** @param what as people call it: `workload token request` */
export const malformedQuestion = (what: string, { field, why, cause }: QuestionFault): ControlError =>
  new ControlError('MALFORMED', `the ${what} is not one: ${field} ${why}`, {
    details: { reason: 'request', field },
    ...(cause === undefined ? {} : { cause }),
  });

/** @throws FRAME_TOO_LARGE, MALFORMED */
export function decodeQuestion<D extends DescMessage>(
  schema: D,
  bytes: Uint8Array,
  { bound, what }: { readonly bound: Bound; readonly what: string },
): MessageShape<D> {
  try {
    return decodeMessage(schema, bytes, bound);
  } catch (cause) {
    const tooLarge = cause instanceof ProtocolError && cause.code === 'FRAME_TOO_LARGE';
    if (tooLarge) throw new ControlError('FRAME_TOO_LARGE', cause.message, { details: { reason: 'request' } });
    throw new ControlError('MALFORMED', `the ${what} does not decode`, { cause, details: { reason: 'request' } });
  }
}

/** What every question names. @throws MALFORMED naming the field */
export function assertQuestionIds({ requestId, epk }: { readonly requestId: string; readonly epk: Uint8Array }, what: string): void {
  if (!requestIdPattern.test(requestId)) throw malformedQuestion(what, { field: 'request_id', why: 'is not 1 to 64 printable characters' });
  try {
    parseP256Spki(epk);
  } catch (cause) {
    throw malformedQuestion(what, { field: 'epk', why: 'is not a P-256 public key', cause });
  }
}

/** @throws MALFORMED when the key to answer to is the one that signs: that one is not made for this question */
export function assertOwnKeyUnused(epk: Uint8Array, nodeKey: Uint8Array, what: string): void {
  if (Buffer.from(epk).equals(nodeKey)) throw malformedQuestion(what, { field: 'epk', why: "is the node's own key" });
}

/** @throws PERMISSION_DENIED for the answer to another question; MALFORMED unless it holds exactly one of box and word */
export function assertAnswers(
  { requestId, jwe, error }: { readonly requestId: string; readonly jwe: string; readonly error: string },
  asked: { readonly requestId: string; readonly holds: string },
): void {
  if (requestId !== asked.requestId)
    throw new ControlError('PERMISSION_DENIED', 'the answer is not to this request', { details: { reason: 'other-request' } });
  if ((jwe === '') === (error === ''))
    throw new ControlError('MALFORMED', `the answer must hold either ${asked.holds} or an error`, { details: { reason: 'answer' } });
}
