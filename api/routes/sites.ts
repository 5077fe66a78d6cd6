import * as schemas from '../metal-schemas.ts';
import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';

export const siteRoutes = ({ machines }: OperatorPorts): Route[] => [
  route({
    method: 'get',
    path: '/v1/sites',
    summary: 'List the sites: who speaks for the machines there, and how many are in which state',
    permission: 'machines.read',
    answer: schemas.sites,
    handle: async ({ principal }) => ({ sites: await machines.sites(principal, null) }),
  }),
  route({
    method: 'get',
    path: '/v1/sites/:id',
    summary: 'Show one site',
    permission: 'machines.read',
    answer: schemas.site,
    handle: ({ params, principal }) => machines.site(principal, params['id'] ?? ''),
  }),
  route({
    method: 'post',
    path: '/v1/profiles/validate',
    summary: 'Judge the text of a profile: everything that is wrong with it, with line and field',
    permission: 'machines.read',
    maxBytes: 2 * 2 ** 20,
    body: schemas.profileText,
    answer: schemas.judgedProfile,
    handle: async ({ body }) => machines.judgeProfile(body.text),
  }),
];
