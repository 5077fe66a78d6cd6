import { randomUUID } from 'node:crypto';
import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';
import { commands, commandsRequest, started } from '../schemas.ts';

/** The commands of one workflow that an answer holds at most. */
const answerLimit = 10_000;

export const commandRoutes = ({ reads, workflows }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/commands',
    summary: 'Run one command on one or many nodes: starts a workflow that signs, sends and waits',
    body: commandsRequest,
    answer: started,
    status: 202,
    handle: ({ body: { idempotencyKey, ...request } }) => workflows.startCommands({ ...request, unique: idempotencyKey ?? randomUUID() }),
  }),
  route({
    method: 'get',
    path: '/v1/commands/:id',
    summary: 'Show a command, or every command of a workflow, by id (slashes percent-encoded)',
    answer: commands,
    handle: async ({ params }) => ({ commands: await reads.getCommands(params['id'] ?? '', answerLimit) }),
  }),
];
