/**
 * What an agent gets of this deployment, over the Model Context Protocol: it may look, and it may propose. It holds no key and approves
 * nothing; what it proposes is a batch like any other, held until people have signed it, with the agent named beside the person it acts for
 * (BAT-052, BAT-054).
 *
 * Threat model: the agent's words are a stranger's. The reason is shown to approvers as the agent's own text; sizes, subjects and payloads are
 * judged by the api; answers go back as text and never as instructions. What it does not do: approve, reject, cancel, run a command.
 */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';
import { errorTable, isControlError } from '../../domain/errors.ts';
import type { Ports } from '../ports.ts';
import { proposalOf, proposalShape } from './proposal.ts';

export interface McpOptions {
  readonly version: string;
  /** The person it acts for. */
  readonly actor: string;
  readonly agent: string;
  readonly delegation: string;
}

const readOnly = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false };

export function createMcpServer(ports: Ports, options: McpOptions): McpServer {
  const server = new McpServer(
    { name: 'better-compute', version: options.version },
    {
      instructions:
        'Look at the fleet, and propose batches of destructive work. People approve them with keys that no agent has; nothing runs before.',
    },
  );
  const proposer = { ...options, actor: isTokenOfIssuer(ports) ? null : options.actor };
  const text = (name: string, id: string) => z.string().min(1).max(256).describe(`${name}, such as ${id}`);
  const read = (name: string, description: string, work: () => Promise<unknown>): void =>
    void server.registerTool(name, { description, inputSchema: {}, annotations: readOnly }, () => answered(work));

  server.registerTool(
    'propose_command_batch',
    {
      description:
        'Propose a batch of commands for people to approve. Each entry of the scope is one operation on one machine, run at most once. Answers with the batch; nothing runs until enough approvers have signed it.',
      inputSchema: proposalShape,
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
    },
    (proposal) => answered(async () => ports.batches().create(proposalOf(proposal, proposer))),
  );
  server.registerTool(
    'show_batch',
    {
      description: 'Show a batch: state, approvals, how far it is',
      inputSchema: { id: text('the batch', 'b-0123…') },
      annotations: readOnly,
    },
    ({ id }) => answered(() => ports.batches().get(id)),
  );
  server.registerTool(
    'show_command',
    {
      description: 'Show a command, or all of a workflow, with results',
      inputSchema: { id: text('the command', 'command/…/node-17') },
      annotations: readOnly,
    },
    ({ id }) => answered(() => ports.api().getCommands(id)),
  );
  server.registerTool(
    'show_node',
    { description: 'Show one machine', inputSchema: { id: text('the node', 'node-17') }, annotations: readOnly },
    ({ id }) => answered(() => ports.api().getNode(id)),
  );
  server.registerTool(
    'list_nodes',
    {
      description: 'List machines in the order of their ids, up to 500 a call',
      inputSchema: { after: z.string().max(256).default(''), limit: z.int().min(1).max(500).default(100) },
      annotations: readOnly,
    },
    (query) => answered(() => ports.api().listNodes(query)),
  );
  read('list_batches', 'List the newest batches', () => ports.batches().list({ limit: 100 }));
  read('list_stuck', 'List what waits: since when, on whom, and which command helps', () => ports.api().listStuck());
  read('show_trust', 'Show the published trust bundle and how much of the fleet holds it', () => ports.api().getTrust());
  return server;
}

/** An access token of an issuer says who asks. That this is an agent is said either way: the token may be the person's own. */
const isTokenOfIssuer = (ports: Ports): boolean => ports.settings.bearer().split('.').length === 3;

/** A refusal is an answer that says what to do; an agent reads it, and so does whoever watches. */
async function answered(work: () => Promise<unknown>): Promise<CallToolResult> {
  try {
    return { content: [{ type: 'text', text: JSON.stringify(await work(), bytesAsText, 1) }] };
  } catch (error) {
    if (!isControlError(error)) throw error;
    const { code, message, details } = error;
    return {
      isError: true,
      content: [{ type: 'text', text: JSON.stringify({ code, message, hint: errorTable[code].hint, reason: details['reason'] }, null, 1) }],
    };
  }
}

const bytesAsText = (_name: string, value: unknown): unknown => (value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value);
