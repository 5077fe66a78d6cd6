import * as schemas from '../batch-schemas.ts';
import { bodySizes } from '../body-sizes.ts';
import type { OperatorPorts } from '../ports.ts';
import type { Principal } from '../principal.ts';
import { actorOf, assertTenantOf, recordedActorOf } from '../principal.ts';
import { type Route, route } from '../route.ts';

export const batchRoutes = (ports: OperatorPorts): Route[] => [...proposing(ports), ...deciding(ports)];

const proposing = ({ batches }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/batches',
    summary: 'Create a batch of operations for approvers to sign; its commands are held until enough of them have',
    permission: 'batches.create',
    maxBytes: bodySizes.batch,
    body: schemas.createBatch,
    answer: schemas.createdBatch,
    status: 201,
    handle: ({ body, principal }) => {
      assertTenantOf(principal, body.tenantId);
      return batches.create(body, { createdBy: actorOf(principal, body.actor), agent: agentOf(principal, body) });
    },
  }),
  route({
    method: 'get',
    path: '/v1/batches',
    summary: 'List the batches of the tenants of the caller, the newest first',
    permission: 'batches.read',
    query: schemas.batchPage,
    answer: schemas.batches,
    handle: async ({ query, principal }) => {
      const found = await batches.list(principal, query);
      return { batches: found, next: found.length < query.limit ? null : (found.at(-1)?.id ?? null) };
    },
  }),
  route({
    method: 'get',
    path: '/v1/batches/:id',
    summary: 'Show a batch: what approvers sign, who has signed, how far it is',
    permission: 'batches.read',
    answer: schemas.batch,
    handle: ({ params, principal }) => batches.get(principal, params['id'] ?? ''),
  }),
  route({
    method: 'get',
    path: '/v1/batches/:id/scope',
    summary: 'Read the leaves of a batch in the order of its tree, up to 5000 and 8 MiB of payloads a page',
    permission: 'batches.read',
    query: schemas.scopePageQuery,
    answer: schemas.scopePage,
    handle: ({ params, query, principal }) => batches.scope(principal, params['id'] ?? '', query),
  }),
];

const deciding = ({ batches }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/batches/:id/approve',
    summary: 'Record the signature of an approver; with enough of them the batch is approved',
    permission: 'batches.approve',
    body: schemas.approval,
    answer: schemas.recordedApproval,
    handle: ({ params, body, principal }) =>
      batches.approve(principal, params['id'] ?? '', { kid: body.kid, sig: body.sig, actor: recordedActorOf(principal, body.actor) }),
  }),
  ...(['cancel', 'reject'] as const).map((what) =>
    route({
      method: 'post',
      path: `/v1/batches/:id/${what}`,
      summary:
        what === 'cancel'
          ? 'Cancel a batch: what no machine has taken is cancelled'
          : 'Reject a batch as an approver: it is cancelled and says so',
      permission: what === 'cancel' ? 'batches.cancel' : 'batches.approve',
      body: schemas.batchWords,
      answer: schemas.endedBatch,
      handle: ({ params, body, principal }) =>
        batches.end(principal, params['id'] ?? '', { what, actor: recordedActorOf(principal, body.actor), reason: body.reason }),
    }),
  ),
];

/** An agent is named by the token. Where that names a person, a field may still say that an agent uses it; no field unnames one. */
function agentOf(principal: Principal, { agent }: schemas.CreateBatchBody): Principal['agent'] {
  return principal.agent ?? agent ?? null;
}
