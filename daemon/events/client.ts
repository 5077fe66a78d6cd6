/** Says over the daemon's own session what happened on this node, signed by its key, until the control plane has it (SIGN-014). */
import { second } from '../../domain/time.ts';
import { createEventReport, type PendingReport, readEventReceipt } from '../../pki/events/index.ts';
import type { EventReceipt, EventReport } from '../../proto/index.ts';
import { QuestionClient, type QuestionKind, type QuestionPorts } from '../broker/question-client.ts';

const receiptWithinMs = 10 * second;

/** An allocation that holds its part of this machine. */
export interface BoundAllocation {
  readonly reservationId: string;
  readonly allocationId: string;
}

/** One welcomed session. */
export interface EventSession {
  /** False when it takes nothing more. */
  sendEventReport(report: EventReport): boolean;
}

type EventQuestion = QuestionKind<EventSession, BoundAllocation, PendingReport, EventReceipt, void>;

export class EventClient extends QuestionClient<EventSession, BoundAllocation, PendingReport, EventReceipt, void> {
  /** @param speaker whose word it is, as the identity says now */
  constructor(ports: QuestionPorts, speaker: () => { readonly trustDomain: string; readonly nodeId: string }) {
    const question: EventQuestion = {
      withinMs: receiptWithinMs,
      told: ({ reservationId }) => ({ what: `the receipt of reservation ${reservationId}`, details: { reservationId } }),
      create({ reservationId, allocationId }, signer) {
        const event = { case: 'allocationBound' as const, value: { reservationId, allocationId } };
        const { trustDomain, nodeId } = speaker();
        return createEventReport(signer, { trustDomain, nodeId, occurredAtMs: BigInt(ports.now()), event });
      },
      send: (session, { request }) => session.sendEventReport(request),
      open: readEventReceipt,
    };
    super(question, ports);
  }
}
