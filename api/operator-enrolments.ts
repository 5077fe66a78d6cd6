/** Enrolments over SSH as operators order them: the row first, then the workflow that carries it out. */
import { type EnrolmentState, isOver } from '../domain/enrolment/states.ts';
import { ControlError } from '../domain/errors.ts';
import type { Database } from '../drizzle/client.ts';
import {
  draftEnrolment,
  type Enrolment,
  type EnrolmentOrder,
  endEnrolment,
  getEnrolment,
  listEnrolments,
  orderEnrolment,
} from '../services/enrolments/index.ts';
import { workflowIds } from '../temporal.config.ts';
import type { OperatorWorkflows } from './ports.ts';

export interface EnrolmentView extends Enrolment {
  readonly workflowId: string;
}

export type EnrolmentDraft = Awaited<ReturnType<typeof draftEnrolment>>;

interface Said {
  readonly actor: string;
  readonly reason: string;
}

export interface OperatorEnrolments {
  /** What would be ordered. @throws as order */
  draft(order: EnrolmentOrder): Promise<EnrolmentDraft>;
  /** @throws INVALID_INPUT with every problem; NOT_FOUND; INVALID_STATE; CONFLICT (enrol-in-progress) */
  order(order: EnrolmentOrder, said: Said): Promise<EnrolmentView>;
  list(page: { readonly nodeId: string | null; readonly openOnly: boolean; readonly limit: number }): Promise<EnrolmentView[]>;
  /** @throws NOT_FOUND */
  get(id: string): Promise<EnrolmentView>;
  /** @throws INVALID_STATE when it is over */
  cancel(id: string, said: Said): Promise<EnrolmentView>;
}

export interface OperatorEnrolmentsOptions {
  readonly db: Database;
  readonly trustDomain: () => string;
  readonly workflows: Pick<OperatorWorkflows, 'startEnrolment' | 'cancelEnrolment'>;
  now(): number;
}

const viewOf = (enrolment: Enrolment): EnrolmentView => ({ ...enrolment, workflowId: workflowIds.enrolment(enrolment.nodeId) });

const endedAs = (id: string, state: EnrolmentState): ControlError =>
  new ControlError('INVALID_STATE', `enrolment ${id} is ${state}`, { details: { reason: 'enrolment-over' } });

export function createOperatorEnrolments({ db, trustDomain, workflows, now }: OperatorEnrolmentsOptions): OperatorEnrolments {
  return {
    draft: (order) => draftEnrolment(db, order, { trustDomain: trustDomain() }),

    async order(order, { actor, reason }) {
      const enrolment = await orderEnrolment(db, order, { trustDomain: trustDomain(), actor, reason, now: now() });
      const { id, nodeId, kind } = enrolment;
      try {
        await workflows.startEnrolment({ kind, nodeId, enrolmentId: id });
      } catch (error) {
        // Nobody would carry it out, and the next order would be refused because of it.
        await endEnrolment(db, { id, as: 'fail', reason: 'its workflow could not be started', actor, now: now() });
        throw error;
      }
      return viewOf(enrolment);
    },

    list: async (page) => (await listEnrolments(db, page)).map(viewOf),
    get: async (id) => viewOf(await getEnrolment(db, id)),

    async cancel(id, { actor, reason }) {
      const { state, nodeId } = await getEnrolment(db, id);
      if (isOver(state)) throw endedAs(id, state);
      // The order first: from then on no machine completes it, whoever carries it out. Its workflow then tidies up, where there is one.
      const ended = await endEnrolment(db, { id, as: 'cancel', reason, actor, now: now() });
      // The machine, or its workflow, was quicker.
      if (ended !== 'cancelled') throw endedAs(id, ended);
      await workflows.cancelEnrolment({ nodeId, enrolmentId: id });
      return viewOf(await getEnrolment(db, id));
    },
  };
}
