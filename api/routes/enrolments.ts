import * as schemas from '../enrolment-schemas.ts';
import type { OperatorPorts } from '../ports.ts';
import { recordedActorOf } from '../principal.ts';
import { type Route, route } from '../route.ts';

export const enrolmentRoutes = ({ enrolments }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/enrolments',
    summary: 'Enrol a machine over SSH, for the first time or again: starts the workflow that does it',
    body: schemas.enrolmentOrder,
    answer: schemas.enrolmentAnswer,
    status: 202,
    handle: async ({ body: { dryRun, actor, reason, ...order }, principal }) => {
      if (dryRun) return { draft: await enrolments.draft(order), enrolment: null };
      return { draft: null, enrolment: await enrolments.order(order, { actor: recordedActorOf(principal, actor), reason }) };
    },
  }),
  route({
    method: 'get',
    path: '/v1/enrolments',
    summary: 'List enrolments over SSH, the newest first',
    query: schemas.enrolmentsPage,
    answer: schemas.enrolments,
    handle: async ({ query: { node, open, limit } }) => ({
      enrolments: await enrolments.list({ nodeId: node ?? null, openOnly: open === 'true', limit }),
    }),
  }),
  route({
    method: 'get',
    path: '/v1/enrolments/:id',
    summary: 'Show one enrolment',
    answer: schemas.enrolment,
    handle: ({ params }) => enrolments.get(params['id'] ?? ''),
  }),
  route({
    method: 'post',
    path: '/v1/enrolments/:id/cancel',
    summary: 'End an enrolment that has not completed; what serves goes on',
    body: schemas.enrolmentEnd,
    answer: schemas.enrolment,
    handle: ({ params, body: { actor, reason }, principal }) =>
      enrolments.cancel(params['id'] ?? '', { actor: recordedActorOf(principal, actor), reason }),
  }),
];
