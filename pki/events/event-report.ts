/**
 * What a node says of itself, signed (SIGN-014): the report goes through a gateway, which may hold it back, repeat it or pass it on as another
 * node's, and can neither make one nor change it. A report that is repeated says the same; what it changes the second time is the rule's
 * matter (domain/capacity/binding.ts).
 *
 *   report    EventReport, signature = purpose event over body
 *   body      EventBody: trust domain, node, and one event
 */
import { randomUUID } from 'node:crypto';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { eventErrors, isEventError } from '../../domain/capacity/binding.ts';
import { ControlError } from '../../domain/errors.ts';
import {
  EventBodySchema,
  type EventReceipt,
  EventReceiptSchema,
  type EventReport,
  EventReportSchema,
  encodeMessage,
  type Signature,
} from '../../proto/index.ts';
import { signEnvelope, verifyEnvelope } from '../envelope/index.ts';
import type { Signer } from '../x509/index.ts';

/** What a node keeps until the receipt comes. */
export interface PendingReport {
  readonly request: EventReport;
}

/** @param signer the node's key */
export async function createEventReport(signer: Signer, event: MessageInitShape<typeof EventBodySchema>): Promise<PendingReport> {
  const body = encodeMessage(EventBodySchema, event, 'eventPayload');
  const signature = await signEnvelope(signer, 'event', [body]);
  return { request: create(EventReportSchema, { requestId: randomUUID(), body, signature }) };
}

/** @param key SPKI of the certificate that is to have signed. @throws BAD_SIGNATURE */
export const verifyEventReport = (
  { body, signature }: { readonly body: Uint8Array; readonly signature: Signature | undefined },
  key: Uint8Array,
): void => verifyEnvelope({ signature, purpose: 'event', parts: [body], key });

/** @param error empty: recorded */
export const eventReceipt = (requestId: string, error: '' | keyof typeof eventErrors): Uint8Array =>
  encodeMessage(EventReceiptSchema, { requestId, error }, 'eventReceipt');

/** At the node. @throws what the control plane's word stands for; details.reason is the word */
export function readEventReceipt({ error }: EventReceipt): void {
  if (error === '') return;
  const word = isEventError(error) ? error : 'unavailable';
  const { code, summary } = eventErrors[word];
  throw new ControlError(code, `the control plane did not record the event (${word}): ${summary}`, { details: { reason: word } });
}
