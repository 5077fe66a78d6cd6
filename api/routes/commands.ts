import { createHash, randomUUID } from 'node:crypto';
import type { OperatorPorts } from '../ports.ts';
import { type Principal, recordedActorOf } from '../principal.ts';
import { type Route, route } from '../route.ts';
import { commands, commandsRequest, rebootRequest, started } from '../schemas.ts';

/** The commands of one workflow that an answer holds at most. */
const answerLimit = 10_000;

export const commandRoutes = ({ reads, workflows, batches }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/commands',
    summary: 'Run one command on one or many nodes: starts a workflow that signs, sends and waits; in a batch it waits for the approval',
    permission: 'commands.run',
    body: commandsRequest,
    answer: started,
    status: 202,
    handle: async ({ body: { idempotencyKey, ...request }, principal }) => {
      const actor = recordedActorOf(principal, request.actor);
      await batches.assertMayRun(principal, request);
      return workflows.startCommands({ ...request, actor, unique: uniqueOf(principal, idempotencyKey) });
    },
  }),
  route({
    method: 'post',
    path: '/v1/reboots',
    summary: 'Reboot nodes: starts a workflow that makes a batch of them, waits for its approval and releases it in waves',
    permission: 'commands.run',
    body: rebootRequest,
    answer: started,
    status: 202,
    handle: async ({ body: { idempotencyKey, ...request }, principal }) => {
      await batches.assertOwnNodes(principal, request.nodes);
      const actor = recordedActorOf(principal, request.actor);
      return workflows.startReboots({ ...request, actor, unique: uniqueOf(principal, idempotencyKey) });
    },
  }),
  route({
    method: 'get',
    path: '/v1/commands/:id',
    summary: 'Show a command, or every command of a workflow, by id (slashes percent-encoded)',
    permission: 'commands.read',
    answer: commands,
    handle: async ({ params, principal }) => ({ commands: await reads.getCommands(params['id'] ?? '', { limit: answerLimit, principal }) }),
  }),
];

/** A key is its caller's: the same one of another person, or of an agent beside the person, starts another workflow. */
function uniqueOf({ kind, name, agent }: Principal, key: string | undefined): string {
  if (key === undefined) return randomUUID();
  if (kind === 'operator-token') return key;
  const caller = JSON.stringify([name, agent?.name ?? null]);
  return `${key}.${createHash('sha256').update(caller).digest('hex').slice(0, 16)}`;
}
