import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';
import { revokeRequest, sshCertificates, sshPage, started } from '../schemas.ts';

export const sshRoutes = ({ reads, workflows }: OperatorPorts): Route[] => [
  route({
    method: 'get',
    path: '/v1/ssh-certificates',
    summary: 'List the break-glass certificates that were issued, the newest first',
    query: sshPage,
    answer: sshCertificates,
    handle: async ({ query }) => ({ certificates: await reads.listSshCertificates({ nodeId: query.node ?? null, limit: query.limit }) }),
  }),
  route({
    method: 'post',
    path: '/v1/ssh-certificates/:serial/revoke',
    summary: 'Take a break-glass certificate back: starts the workflow that puts its serial into the list of its node',
    body: revokeRequest,
    answer: started,
    status: 202,
    handle: async ({ params, body }) => {
      // A workflow on a serial nobody gave out would only fail later, out of the caller's sight.
      const { serial } = await reads.getSshCertificate(params['serial'] ?? '');
      return workflows.startSshRevoke({ serial, ...body });
    },
  }),
];
