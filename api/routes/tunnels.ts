/**
 * Tunnels and sandboxes: who may have one is decided with the thing in hand, at its tenant, so that a refusal stands in the trail with what
 * was asked for (EXEC-005). Which instance runs where is the deployment's word alone.
 */
import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';
import * as schemas from '../tunnel-schemas.ts';

export const tunnelRoutes = ({ tunnels }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/tunnels',
    summary: 'Open a tunnel: an exec ticket for a machine or an instance, and the gateway to bring it to',
    permission: 'decided-inside',
    body: schemas.openTunnel,
    answer: schemas.openedTunnel,
    status: 201,
    handle: ({ principal, body }) => tunnels.open(principal, body),
  }),
  route({
    method: 'post',
    path: '/v1/sandboxes/:id/exec',
    summary: 'Get a certificate for one account in the guest of a sandbox, for a key of the caller',
    permission: 'decided-inside',
    body: schemas.execSandbox,
    answer: schemas.sandboxLogin,
    status: 201,
    handle: ({ params, principal, body }) => tunnels.exec(principal, { ...body, instanceId: params['id'] ?? '' }),
  }),
  ...instanceRoutes(tunnels),
];

const instanceRoutes = (tunnels: OperatorPorts['tunnels']): Route[] => [
  route({
    method: 'get',
    path: '/v1/instances',
    summary: 'List the instances that run, in order of id',
    query: schemas.instancePage,
    answer: schemas.instances,
    handle: async ({ query }) => ({ instances: await tunnels.list(query) }),
  }),
  route({
    method: 'post',
    path: '/v1/instances',
    summary: 'Say that an instance runs on a node, for a tenant, and where in the network it is',
    body: schemas.placeInstance,
    answer: schemas.placeInstance,
    status: 201,
    handle: async ({ body }) => {
      await tunnels.place(body);
      return body;
    },
  }),
  route({
    method: 'post',
    path: '/v1/instances/:id/end',
    summary: 'Say that an instance runs on a node no more',
    body: schemas.endInstance,
    answer: schemas.endedInstance,
    handle: async ({ params, body }) => ({ ended: await tunnels.end({ instanceId: params['id'] ?? '', nodeId: body.nodeId }) }),
  }),
];
