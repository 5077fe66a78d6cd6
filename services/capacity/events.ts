/**
 * What nodes report (SIGN-014): the checks run in one fixed order and each has its word; nothing is written before the last of them, and the
 * write holds to what was judged.
 *
 * Threat model: the report comes through a gateway that may change, repeat or invent it, and pass one node's off as another's. Whose word it
 * is says the node's signature under a certificate that was issued here; a report that is repeated changes nothing the second time.
 */
import { type EventError, isEventError } from '../../domain/capacity/binding.ts';
import { isControlError } from '../../domain/errors.ts';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { eventReceipt } from '../../pki/events/index.ts';
import { EventBodySchema, type EventReport, EventReportSchema } from '../../proto/index.ts';
import { proveAskingNode } from '../asking-node.ts';
import type { GatewayPeer } from '../gateway-port.ts';
import type { ServiceLog } from '../log.ts';
import { decodeRequest } from '../wire.ts';
import type { AllocationBindingCheck } from './binding-check.ts';
import { activateReservation } from './reservations.ts';

export interface EventOptions {
  readonly db: Database;
  readonly trustDomain: string;
  /** DER of every certificate of the node CA's key. */
  readonly anchors: readonly Uint8Array[];
  /** SPKI of the node CA. */
  readonly nodeCa: Uint8Array;
  readonly attestedBindings: AllocationBindingCheck;
  readonly log: ServiceLog;
}

/** What a refusal is to the node; null for a fault of ours. */
function wordOf(error: unknown): EventError | null {
  if (!isControlError(error)) return null;
  const { reason } = error.details;
  if (typeof reason === 'string' && isEventError(reason)) return reason;
  if (error.code === 'UNAVAILABLE' || error.code === 'INTERNAL' || error.code === 'CONFLICT') return null;
  // What is wrong with who reports is not told to him.
  return 'access-denied';
}

/**
 * @param bytes an encoded EventReport
 * @param peer the chain that the reporting session proved to the gateway
 * @returns an encoded EventReceipt
 * @throws FRAME_TOO_LARGE, MALFORMED for bytes that are no report
 */
export async function recordEvent(bytes: Uint8Array, peer: GatewayPeer, options: EventOptions): Promise<Uint8Array> {
  const report = decodeRequest(EventReportSchema, bytes, 'eventReport');
  try {
    return eventReceipt(report.requestId, await record(report, peer, options));
  } catch (error) {
    const word = wordOf(error) ?? 'unavailable';
    const level = word === 'unavailable' ? 'error' : 'info';
    options.log[level]({ err: error, requestId: report.requestId.slice(0, 64), word }, `event refused: ${word}`);
    return eventReceipt(report.requestId, word);
  }
}

async function record(report: EventReport, peer: GatewayPeer, options: EventOptions): Promise<'' | EventError> {
  const { db, attestedBindings, log } = options;
  const now = await databaseNow(db);
  const { identity } = await proveAskingNode(peer, { ...options, now }); //                    1. an active node's session
  const { trustDomain, nodeId, event } = decodeRequest(EventBodySchema, report.body, 'eventPayload'); //                                2. a body
  if (event.case === undefined) return 'unsupported'; //                                       3. an event that is known here
  const { reservationId, allocationId } = event.value;
  const statement = { trustDomain, nodeId, reservationId, allocationId };
  const { body, signature } = report;
  const evidence = await attestedBindings(db, { nodeId: identity.nodeId, statement, body, signature }, now); // 4. the node's own word
  const bound = { reservationId, allocationId, nodeId: identity.nodeId, evidence };
  const outcome = await activateReservation(db, bound, now); //                                5. and it still counts
  log.info({ nodeId: identity.nodeId, reservationId, allocationId, outcome }, `allocation ${allocationId} is bound`);
  return '';
}
