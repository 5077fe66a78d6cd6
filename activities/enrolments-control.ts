/** The steps of an enrolment that need no machine: read the order, wait for its end, end it. */
import type { EnrolmentKind } from '../domain/enrolment/order.ts';
import type { EnrolmentState } from '../domain/enrolment/states.ts';
import { ControlError } from '../domain/errors.ts';
import { minute } from '../domain/time.ts';
import { translated } from './failures.ts';
import type { EnrolmentsPort } from './host-ports.ts';
import { currentWait, notYet } from './not-yet.ts';

export interface OpenedEnrolment {
  readonly nodeId: string;
  /** Where it is reached, for the operator who reads the story. */
  readonly at: string;
  readonly baseGeneration: number | null;
  readonly state: EnrolmentState;
  readonly reason: string;
}

export type EnrolmentSeen =
  | { readonly state: 'completed'; readonly generation: number; readonly connected: boolean }
  | { readonly state: 'late' | 'failed' | 'cancelled' };

export interface EnrolmentControlActivities {
  openEnrolment(input: { enrolmentId: string; nodeId: string; kind: EnrolmentKind }): Promise<OpenedEnrolment>;
  awaitEnrolment(input: { enrolmentId: string }): Promise<EnrolmentSeen>;
  endEnrolment(input: { enrolmentId: string; as: 'fail' | 'cancel'; reason: string }): Promise<{ state: EnrolmentState }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

/** The identity is the machine's from its join on; that it is also seen connected is waited for this much longer. */
const connectsWithinMs = 5 * minute;

export const createEnrolmentControlActivities = ({ enrolments }: { readonly enrolments: EnrolmentsPort }): EnrolmentControlActivities =>
  translated<EnrolmentControlActivities>({
    async openEnrolment({ enrolmentId, nodeId, kind }) {
      const found = await enrolments.get(enrolmentId);
      if (found.nodeId !== nodeId || found.kind !== kind)
        throw new ControlError('INVALID_INPUT', `enrolment ${enrolmentId} is to ${found.kind} node ${found.nodeId}`, {
          details: { reason: 'other-enrolment' },
        });
      const { state, baseGeneration, reason, address, port, login } = found;
      return { nodeId, at: `${login}@${address}:${port}`, baseGeneration, state, reason };
    },

    async awaitEnrolment({ enrolmentId }) {
      const { state, connected, deadline, generation, now } = await enrolments.progress(enrolmentId);
      const wait = currentWait();
      switch (state) {
        case 'failed':
        case 'cancelled':
          return { state };
        case 'completed':
          if (connected || wait.elapsedMs > connectsWithinMs) return { state, generation: generation ?? 0, connected };
          return notYet({ reason: 'session', message: 'the machine has its new identity and is not connected yet' }, wait);
        case 'open':
        case 'minted':
          if (deadline !== null && now > deadline) return { state: 'late' };
          return notYet({ reason: 'completion', message: 'the machine has not come with its new key yet' }, wait);
      }
    },

    endEnrolment: async ({ enrolmentId, as, reason }) => ({ state: await enrolments.end({ id: enrolmentId, as, reason }) }),
  });
