import type { OperatorPorts } from '../ports.ts';
import { recordedActorOf } from '../principal.ts';
import { type Route, route } from '../route.ts';
import * as schemas from '../schemas.ts';

export const joinRoutes = ({ joins }: OperatorPorts): Route[] => [
  route({
    method: 'get',
    path: '/v1/joins',
    summary: "List the joins that wait for an operator's word, and those that were decided lately",
    query: schemas.joinsPage,
    answer: schemas.joins,
    handle: async ({ query }) => ({ joins: await joins.list({ state: query.state ?? null, limit: query.limit }) }),
  }),
  ...(['approve', 'refuse'] as const).map((what) =>
    route({
      method: 'post',
      path: `/v1/joins/:id/${what}`,
      summary: what === 'approve' ? 'Admit a machine whose join waits' : 'Refuse a machine whose join waits',
      body: schemas.joinDecision,
      answer: schemas.join,
      handle: async ({ params, body: { actor, reason }, principal }) =>
        joins.decide({
          id: params['id'] ?? '',
          as: what === 'approve' ? 'approved' : 'refused',
          actor: recordedActorOf(principal, actor),
          reason,
        }),
    }),
  ),
];
