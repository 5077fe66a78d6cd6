import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';
import { credentialRequest, node, nodes, page, revokeRequest, started } from '../schemas.ts';

export const nodeRoutes = ({ reads, workflows }: OperatorPorts): Route[] => [
  route({
    method: 'get',
    path: '/v1/nodes',
    summary: 'List the nodes in order of id, with their live session and newest certificate',
    query: page,
    answer: nodes,
    handle: async ({ query }) => {
      const found = await reads.listNodes(query);
      return { nodes: found, next: found.length < query.limit ? null : (found.at(-1)?.id ?? null) };
    },
  }),
  route({
    method: 'get',
    path: '/v1/nodes/:id',
    summary: 'Show one node',
    answer: node,
    handle: ({ params }) => reads.getNode(params['id'] ?? ''),
  }),
  route({
    method: 'post',
    path: '/v1/nodes/:id/revoke',
    summary: 'Revoke the identity of a node: starts the workflow that closes its sessions everywhere',
    body: revokeRequest,
    answer: started,
    status: 202,
    handle: async ({ params, body }) => {
      // A workflow on a name nobody has would only fail later, out of the caller's sight.
      const { id } = await reads.getNode(params['id'] ?? '');
      return workflows.startRevoke({ nodeId: id, ...body });
    },
  }),
  route({
    method: 'post',
    path: '/v1/nodes/:id/delete',
    summary: 'Delete a node: its identity is revoked, its sessions are closed, and it never comes back under this id',
    body: revokeRequest,
    answer: started,
    status: 202,
    handle: async ({ params, body }) => {
      const { id } = await reads.getNode(params['id'] ?? '');
      return workflows.startRevoke({ nodeId: id, ...body, retire: true });
    },
  }),
  route({
    method: 'post',
    path: '/v1/nodes/:id/credentials',
    summary: 'Name the secret that a unit of a node gets: starts the workflow that writes it into the desired state of the node',
    body: credentialRequest,
    answer: started,
    status: 202,
    handle: async ({ params, body }) => {
      const { id } = await reads.getNode(params['id'] ?? '');
      return workflows.startSetCredential({ nodeId: id, ...body });
    },
  }),
];
