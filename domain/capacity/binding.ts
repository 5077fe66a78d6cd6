/**
 * When a node's word that an allocation is bound counts (SIGN-014). One rule over facts: what was said, who holds the key that signed it,
 * what the node and the reservation are now. The signature itself is checked where keys are (services/capacity/binding-check.ts).
 */
import type { NodeRole } from '../commands/kinds.ts';
import type { Code } from '../errors.ts';

/** Why a report of an event counts nothing: the closed words of EventReceipt.error, and what each is to the node's code. */
export const eventErrors = Object.freeze({
  'not-bound': { code: 'PERMISSION_DENIED', summary: 'no reservation of this node is for that allocation' },
  ended: { code: 'INVALID_STATE', summary: 'the reservation has ended' },
  'access-denied': { code: 'PERMISSION_DENIED', summary: 'this node may not say that' },
  unsupported: { code: 'UNSUPPORTED', summary: 'the control plane knows no such event' },
  unavailable: { code: 'UNAVAILABLE', summary: 'it cannot be recorded now' },
} as const satisfies Record<string, { readonly code: Code; readonly summary: string }>);

export type EventError = keyof typeof eventErrors;

export const isEventError = (text: string): text is EventError => Object.hasOwn(eventErrors, text);

export interface BindingStatement {
  readonly trustDomain: string;
  readonly nodeId: string;
  readonly reservationId: string;
  readonly allocationId: string;
}

export const reservationStates = Object.freeze(['pending', 'active', 'ended'] as const);
export type ReservationState = (typeof reservationStates)[number];

export interface ReservationFacts {
  readonly nodeId: string;
  readonly allocationId: string;
  readonly state: ReservationState;
}

export interface BindingFacts {
  readonly statement: BindingStatement;
  /** Whose session brought it. */
  readonly node: { readonly id: string; readonly state: string; readonly identityGeneration: number };
  /** The row of node_certs, of this node, that has the key which signed; null: there is none. */
  readonly certificate: {
    readonly trustDomain: string;
    readonly nodeId: string;
    readonly role: NodeRole;
    readonly generation: number;
    readonly notBefore: number;
    readonly notAfter: number;
    readonly revokedAt: number | null;
  } | null;
  /** null: there is none of that id. */
  readonly reservation: ReservationFacts | null;
  readonly now: number;
}

export type BindingVerdict =
  | { readonly kind: 'bound' }
  /** It counts since before: a report that is repeated changes nothing. */
  | { readonly kind: 'already' }
  | { readonly kind: 'refused'; readonly word: EventError; readonly why: string };

const refused = (word: EventError, why: string): BindingVerdict => ({ kind: 'refused', word, why });

export function judgeBinding(facts: BindingFacts): BindingVerdict {
  const { statement, reservation, node } = facts;
  const unsaid = problemOfSpeaker(facts);
  if (unsaid !== null) return refused('access-denied', unsaid);
  // One word for a reservation that is not there and for one of another node: a node learns nothing of others.
  if (reservation === null) return refused('not-bound', `there is no reservation ${statement.reservationId}`);
  if (reservation.nodeId !== node.id)
    return refused('not-bound', `reservation ${statement.reservationId} is on node ${reservation.nodeId}`);
  if (reservation.allocationId !== statement.allocationId)
    return refused(
      'not-bound',
      `reservation ${statement.reservationId} is for allocation ${reservation.allocationId}, not ${statement.allocationId}`,
    );
  switch (reservation.state) {
    case 'pending':
      return { kind: 'bound' };
    case 'active':
      return { kind: 'already' };
    case 'ended':
      return refused('ended', `reservation ${statement.reservationId} has ended`);
  }
}

/** null when the node itself said it, by a key that is its own now. */
function problemOfSpeaker({ statement, certificate, node, now }: BindingFacts): string | null {
  if (certificate === null) return `no certificate of node ${node.id} has the key that signed`;
  const checks: readonly (readonly [boolean, string])[] = [
    [certificate.nodeId === node.id, `the certificate is of node ${certificate.nodeId}`],
    [certificate.role === 'node', `role ${certificate.role} runs no allocations`],
    [certificate.revokedAt === null, 'the certificate is revoked'],
    [certificate.notBefore <= now, 'the certificate is not valid yet'],
    [now < certificate.notAfter, 'the certificate has ended'],
    [
      certificate.generation === node.identityGeneration,
      `the certificate is of generation ${certificate.generation}, the node of ${node.identityGeneration}`,
    ],
    [node.state === 'active', `the node is ${node.state}`],
    [statement.nodeId === node.id, `it is the word of node ${statement.nodeId}`],
    [statement.trustDomain === certificate.trustDomain, `it is for trust domain ${statement.trustDomain}`],
  ];
  return checks.find(([holds]) => !holds)?.[1] ?? null;
}
