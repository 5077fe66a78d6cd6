import { Command, Option } from 'commander';
import type { NodeAnswer } from '../../api-client.ts';
import { type CommonOptions, commonOptions, wholeNumber, withExamples } from '../../command.ts';
import { agoText, table } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface NodesListOptions extends CommonOptions {
  readonly state: string | null;
  readonly limit: number;
  readonly after: string;
}

export function newNodesList(run: (options: NodesListOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List the nodes: state, session, trust version, open commands')
    .addOption(new Option('--state <state>', 'only nodes in this state').choices(['active', 'quarantined', 'revoked', 'retired']))
    .addOption(new Option('--limit <n>', 'at most so many').default(1_000).argParser(wholeNumber))
    .addOption(new Option('--after <node>', 'only nodes whose id comes after this one').default(''))
    .action((flags: { state?: string; limit: number; after: string }) =>
      run({ ...commonOptions(command), state: flags.state ?? null, limit: flags.limit, after: flags.after }),
    );
  return withExamples(command, ['better-compute nodes list', 'better-compute nodes list --state active --json']);
}

const pageSize = 1_000;

export async function nodesListRun(options: NodesListOptions, { io, api }: Ports): Promise<void> {
  const client = api();
  const found: NodeAnswer[] = [];
  let next: string | null = options.after;
  while (next !== null && found.length < options.limit) {
    const page: Awaited<ReturnType<typeof client.listNodes>> = await client.listNodes({
      after: next,
      limit: Math.min(pageSize, options.limit - found.length),
      ...(options.state === null ? {} : { state: options.state }),
    });
    found.push(...page.nodes);
    next = page.next;
  }
  if (options.json) return writeJson(io, { nodes: found, next });
  if (found.length === 0) return io.err('no node; create a token with: better-compute tokens create');
  io.out(
    table(
      ['NODE', 'ROLE', 'STATE', 'SESSION', 'SEEN', 'TRUST', 'OPEN'],
      found.map((node) => row(node, io.now())),
    ),
  );
  if (next !== null) io.err(`there are more: --after ${next}`);
}

const row = (node: NodeAnswer, now: number): string[] => [
  node.id,
  node.role,
  node.state,
  node.connected ? (node.session?.gatewayId ?? '-') : 'none',
  agoText(node.lastSeenAt, now),
  String(node.session?.trustVersion ?? '-'),
  String(node.openCommands),
];
