/**
 * The broker of secrets (SEC-005 to SEC-011): a machine asks by reference, what was signed for it decides, the answer is sealed to the
 * machine. The checks run in one fixed order and each has its word; no value is fetched before the last of them.
 *
 * Threat model: the question comes through a gateway that may change, repeat or invent it, and the rows may have been written by others
 * (binding.ts). Who asks is taken from the certificate that the question is signed with; a repeated question gets an answer that only the
 * first asker can open. No refusal and no line of the log holds a value; whether a secret exists is told to nobody who is not bound to it.
 */
import { isControlError } from '../../domain/errors.ts';
import type { SecretError } from '../../domain/secrets/errors.ts';
import { minute, second } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { openSecretRequest, refuseSecretRequest, type SecretQuestion, sealSecretResponse } from '../../pki/secrets/index.ts';
import { SecretRequestSchema } from '../../proto/index.ts';
import { type AskingNode, proveAskingNode } from '../asking-node.ts';
import type { GatewayPeer } from '../gateway-port.ts';
import type { ServiceLog } from '../log.ts';
import { decodeRequest } from '../wire.ts';
import { type BindingOptions, isBound } from './binding.ts';
import type { ResolveSecret } from './providers.ts';

export interface SecretBrokerOptions extends Omit<BindingOptions, 'now'> {
  readonly db: Database;
  /** DER of every certificate of the node CA's key. */
  readonly anchors: readonly Uint8Array[];
  /** SPKI of the node CA. */
  readonly nodeCa: Uint8Array;
  readonly resolve: ResolveSecret;
  readonly log: ServiceLog;
}

/** After this the machine takes the answer no more (SEC-015). */
const answerLivesMs = minute;

/** What ends a request with one of the four words. */
class Refused extends Error {
  readonly word: SecretError;
  constructor(word: SecretError, why: string, cause?: unknown) {
    super(why, cause === undefined ? undefined : { cause });
    this.word = word;
  }
}

/**
 * @param bytes an encoded SecretRequest
 * @param peer the chain that the asking session proved to the gateway
 * @returns an encoded SecretResponse: a secret, or one of the four words (SEC-009)
 * @throws FRAME_TOO_LARGE, MALFORMED for bytes that are no request, for then there is nothing to answer to
 */
export async function brokerSecret(bytes: Uint8Array, peer: GatewayPeer, options: SecretBrokerOptions): Promise<Uint8Array> {
  const { requestId, ref } = decodeRequest(SecretRequestSchema, bytes, 'secretRequest');
  try {
    return await answer(bytes, peer, options);
  } catch (error) {
    const word = error instanceof Refused ? error.word : 'unavailable';
    const level = error instanceof Refused ? 'info' : 'error';
    options.log[level]({ err: error, requestId: requestId.slice(0, 64), ref: ref.slice(0, 128), word }, `secret refused: ${word}`);
    return refuseSecretRequest(requestId, word);
  }
}

async function answer(bytes: Uint8Array, peer: GatewayPeer, options: SecretBrokerOptions): Promise<Uint8Array> {
  const now = await databaseNow(options.db); // One clock for all of it, which is no replica's own.
  const asker = await orDenied('its certificate', () => proveAskingNode(peer, { ...options, now })); // 1. an active node
  assertOurs(asker); //                                                                                2. not controlled by a tenant
  const question = await orDenied('its request', async () => openSecretRequest(bytes, { nodeKey: asker.leaf.spki })); // 3. signed by it
  await assertBound(question, asker, { ...options, now }); //                                          4. entitled to this reference
  const value = await options.resolve(question.ref); //                                                5. which exists
  const { nodeId } = asker.identity;
  if (value === undefined) throw new Refused('not-found', `no secret ${question.ref}, asked for by node ${nodeId}`);
  const { ref, workflowId, stepId } = question;
  options.log.info({ nodeId, ref, workflowId, stepId }, `secret ${ref} sent to node ${nodeId}`);
  const expiresAt = Math.floor((now + answerLivesMs) / second) * second;
  return sealSecretResponse(question, { value, expiresAt });
}

/** SEC-011, ID-032: what a tenant controls gets nothing, whatever its rows say. */
function assertOurs({ identity: { role, nodeId } }: AskingNode): void {
  if (role === 'node-tenant') throw new Refused('access-denied', `node ${nodeId} is controlled by a tenant`);
}

async function assertBound(
  question: SecretQuestion,
  { identity: { nodeId }, generation }: AskingNode,
  options: BindingOptions,
): Promise<void> {
  if (await isBound({ ...question, nodeId, generation }, options)) return;
  const { ref, workflowId, stepId, allocationId } = question;
  throw new Refused('not-bound', `node ${nodeId} asked for ${ref} by ${JSON.stringify({ workflowId, stepId, allocationId })}`);
}

/** What is wrong with who asks is not told to him. */
const orDenied = <T>(what: string, run: () => Promise<T>): Promise<T> =>
  run().catch((error: unknown) => {
    throw isControlError(error) ? new Refused('access-denied', `${what} was refused`, error) : error;
  });
