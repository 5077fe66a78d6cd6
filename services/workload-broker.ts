/**
 * The broker of workload tokens (WID-004, WID-025, WID-036, WID-038, WID-041): a host asks, the database decides, the answer is sealed
 * to the host. The checks run in one fixed order and each has its word; nothing is counted or signed before the last of them.
 *
 * Threat model: the request comes through a gateway that may change, repeat or invent it. Who asks is taken from the certificate that
 * the question is signed with, never from the gateway's word or from a field; a repeated question gets an answer that only the first
 * asker can open, and counts against the instance's limit.
 */
import { isControlError } from '../domain/errors.ts';
import type { WorkloadError } from '../domain/workload/errors.ts';
import type { Database } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import {
  openWorkloadTokenRequest,
  refuseWorkloadTokenRequest,
  sealWorkloadTokenResponse,
  type WorkloadIssuer,
  type WorkloadQuestion,
} from '../pki/workload/index.ts';
import type { Certificate, NodeIdentity } from '../pki/x509/index.ts';
import { WorkloadTokenRequestSchema } from '../proto/index.ts';
import { proveAskingNode } from './asking-node.ts';
import type { GatewayPeer } from './gateway-port.ts';
import type { ServiceLog } from './log.ts';
import { decodeRequest } from './wire.ts';
import { admitTokenRequest, isPlaced } from './workload-instances.ts';

/** The issuer as it is now, asked for at every request: readWorkloadIssuer, or one that the process holds itself (WID-004). */
export type WorkloadIssuerSource = () => WorkloadIssuer | Promise<WorkloadIssuer>;

export interface WorkloadBrokerOptions {
  readonly db: Database;
  readonly trustDomain: string;
  /** DER of every certificate of the node CA's key. */
  readonly anchors: readonly Uint8Array[];
  /** SPKI of the node CA. */
  readonly nodeCa: Uint8Array;
  /** null: this deployment issues no workload tokens. */
  readonly issuer: WorkloadIssuerSource | null;
  readonly log: ServiceLog;
}

/** What ends a request with one of the six words. */
class Refused extends Error {
  readonly word: WorkloadError;
  constructor(word: WorkloadError, why: string, cause?: unknown) {
    super(why, cause === undefined ? undefined : { cause });
    this.word = word;
  }
}

/**
 * @param bytes an encoded WorkloadTokenRequest
 * @param peer the chain that the asking session proved to the gateway
 * @returns an encoded WorkloadTokenResponse: a token, or one of the six words
 * @throws FRAME_TOO_LARGE, MALFORMED for bytes that are no request, for then there is nothing to answer to
 */
export async function brokerWorkloadToken(bytes: Uint8Array, peer: GatewayPeer, options: WorkloadBrokerOptions): Promise<Uint8Array> {
  const { requestId } = decodeRequest(WorkloadTokenRequestSchema, bytes, 'workloadTokenRequest');
  try {
    return await answer(bytes, peer, options);
  } catch (error) {
    const word = error instanceof Refused ? error.word : 'unavailable';
    const level = error instanceof Refused ? 'info' : 'error';
    options.log[level]({ err: error, requestId: requestId.slice(0, 64), word }, `workload token refused: ${word}`);
    return refuseWorkloadTokenRequest(requestId, word);
  }
}

async function answer(bytes: Uint8Array, peer: GatewayPeer, options: WorkloadBrokerOptions): Promise<Uint8Array> {
  const now = await databaseNow(options.db); // One clock for all of it, which is no replica's own.
  const { leaf, identity } = await orDeniedLater('its certificate', () => proveAskingNode(peer, { ...options, now })); // 1. 2. an active node
  assertHost(identity); //                                                      3. not controlled by a tenant
  const question = readQuestion(bytes, leaf); //                                4. signed by that node's key
  const issuer = await openIssuer(options); //                                  5. there is an issuer
  await assertBound(question, identity, options); //                            6. the instance runs there
  assertAudience(question, issuer); //                                          7. for an audience that is allowed
  const tenantId = await admit(question, identity, { ...options, now }); //     8. it still does, and its limit holds
  const { instanceId, audience } = question;
  const token = await issuer.issueToken({ tenantId, instanceId, audience });
  options.log.info({ nodeId: identity.nodeId, instanceId, tenantId, jti: token.jti }, `workload token issued for instance ${instanceId}`);
  return sealWorkloadTokenResponse(question, token);
}

/** Only a host of the deployment's own runs instances of others (WID-038). */
function assertHost({ role }: NodeIdentity): void {
  if (role !== 'node') throw new Refused('access-denied', `role ${role}`);
}

const readQuestion = (bytes: Uint8Array, leaf: Certificate): WorkloadQuestion =>
  orDenied('its request', () => openWorkloadTokenRequest(bytes, { nodeKey: leaf.spki }));

async function openIssuer({ issuer }: WorkloadBrokerOptions): Promise<WorkloadIssuer> {
  if (issuer === null) throw new Refused('disabled', 'no issuer is configured');
  return issuer();
}

function assertAudience({ audience }: WorkloadQuestion, issuer: WorkloadIssuer): void {
  if (!issuer.allowsAudience(audience)) throw new Refused('audience', `audience ${JSON.stringify(audience)}`);
}

/** Before the audience: which ones are allowed is told to nobody who asks for an instance of others. */
async function assertBound({ instanceId }: WorkloadQuestion, { nodeId }: NodeIdentity, { db }: WorkloadBrokerOptions): Promise<void> {
  if (!(await isPlaced(db, { instanceId, nodeId }))) throw new Refused('not-bound', `instance ${instanceId} on node ${nodeId}`);
}

async function admit(
  { instanceId }: WorkloadQuestion,
  { nodeId }: NodeIdentity,
  { db, now }: WorkloadBrokerOptions & { readonly now: number },
): Promise<string> {
  const admission = await admitTokenRequest(db, { instanceId, nodeId }, now);
  if (admission.kind !== 'admitted') throw new Refused(admission.kind, `instance ${instanceId} on node ${nodeId}`);
  return admission.tenantId;
}

/** What is wrong with who asks is not told to him. */
const refusedAsker =
  (what: string) =>
  (error: unknown): never => {
    throw isControlError(error) ? new Refused('access-denied', `${what} was refused`, error) : error;
  };

function orDenied<T>(what: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    return refusedAsker(what)(error);
  }
}

const orDeniedLater = <T>(what: string, run: () => Promise<T>): Promise<T> => run().catch(refusedAsker(what));
