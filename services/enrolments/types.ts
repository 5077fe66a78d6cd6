/** Enrolments over SSH as the rest of the control plane sees them. Types only. */
import type { EnrolmentKind, HostAccess } from '../../domain/enrolment/order.ts';
import type { EnrolmentState } from '../../domain/enrolment/states.ts';

export interface Enrolment extends HostAccess {
  readonly id: string;
  readonly nodeId: string;
  readonly siteId: string;
  readonly role: 'node' | 'site';
  readonly tenantId: string;
  readonly kind: EnrolmentKind;
  /** Generation of the identity that serves meanwhile; null: the node was not known. */
  readonly baseGeneration: number | null;
  /** `SHA256:…` of the host key that must answer. */
  readonly hostKey: string;
  /** Where the hosts worker finds the credential: `file://<name>`. */
  readonly credential: string;
  readonly state: EnrolmentState;
  /** The machine completes by then; null before its key is known. */
  readonly deadline: number | null;
  readonly createdBy: string;
  readonly reason: string;
  readonly createdAt: number;
  readonly endedAt: number | null;
  readonly endReason: string;
}
