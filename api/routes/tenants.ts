import * as schemas from '../batch-schemas.ts';
import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';

export const tenantRoutes = ({ tenants }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/tenants',
    summary: 'Create a tenant: machines, batches and join tokens belong to one',
    body: schemas.tenantRequest,
    answer: schemas.createdTenant,
    status: 201,
    handle: async ({ body }) => {
      await tenants.create(body);
      return { id: body.id };
    },
  }),
  route({
    method: 'get',
    path: '/v1/tenants',
    summary: 'List the tenants',
    answer: schemas.tenants,
    handle: async () => ({ tenants: await tenants.list() }),
  }),
  route({
    method: 'post',
    path: '/v1/tenants/:id/delete',
    summary: 'Delete a tenant: nothing new is made for it, and its open batches are cancelled',
    body: schemas.tenantWords,
    answer: schemas.deletedTenant,
    handle: async ({ params, body }) => {
      const id = params['id'] ?? '';
      return { id, cancelledBatches: await tenants.delete({ id, ...body }) };
    },
  }),
];
