import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';
import { createdToken, tokenRequest } from '../schemas.ts';

export const tokenRoutes = ({ tokens }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/tokens',
    summary: 'Create a join token; it is shown once and works once',
    body: tokenRequest,
    answer: createdToken,
    status: 201,
    handle: ({ body }) => tokens.create(body),
  }),
];
