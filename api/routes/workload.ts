import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';
import { workloadKeyAdd, workloadKeyOrder, workloadKeyStep, workloadKeys } from '../schemas.ts';

export const workloadRoutes = ({ workload }: OperatorPorts): Route[] => [
  route({
    method: 'get',
    path: '/v1/workload/keys',
    summary: 'List the keys of the workload issuer, and when each may take its next step',
    answer: workloadKeys,
    handle: async () => {
      const { issuer, keys } = await workload.listKeys();
      return { issuer, keys: [...keys] };
    },
  }),
  route({
    method: 'post',
    path: '/v1/workload/keys',
    summary: 'Publish a new key of the workload issuer; the one that signs goes on (step 1 of 3)',
    body: workloadKeyAdd,
    answer: workloadKeyStep,
    handle: ({ body }) => workload.addKey(body),
  }),
  route({
    method: 'post',
    path: '/v1/workload/keys/promote',
    summary: 'Sign with a published key, five minutes after it was published at the earliest (step 2 of 3)',
    body: workloadKeyOrder,
    answer: workloadKeyStep,
    handle: ({ body }) => workload.promoteKey(body),
  }),
  route({
    method: 'post',
    path: '/v1/workload/keys/retire',
    summary: 'Take a former key out of the set, sixteen minutes after it stopped signing at the earliest (step 3 of 3)',
    body: workloadKeyOrder,
    answer: workloadKeyStep,
    handle: ({ body }) => workload.retireKey(body),
  }),
];
