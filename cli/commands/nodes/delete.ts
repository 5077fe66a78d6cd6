import { Argument, Command } from 'commander';
import { actorOption, assertConfirmed, commonOptions, reasonOption, type SignedOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface NodesDeleteOptions extends SignedOptions {
  readonly node: string;
  readonly yes: boolean;
}

export function newNodesDelete(ports: Ports, run: (options: NodesDeleteOptions) => Promise<void>): Command {
  const command = new Command('delete')
    .description('Delete a node: its identity is revoked, its history stays, and its id never joins again')
    .addArgument(new Argument('<node>', 'node id'))
    .addOption(actorOption(ports.io))
    .addOption(reasonOption())
    .addOption(yesOption())
    .action((node: string, flags: Omit<NodesDeleteOptions, 'json' | 'node'>) => run({ ...commonOptions(command), ...flags, node }));
  return withExamples(command, ['better-compute nodes delete node-17 --reason "scrapped" --yes']);
}

export async function nodesDeleteRun({ node, actor, reason, yes, json }: NodesDeleteOptions, { io, api }: Ports): Promise<void> {
  await assertConfirmed(io, yes, `Delete ${node}? Its id can never join again.`);
  const started = await api().deleteNode(node, { actor, reason });
  if (json) return writeJson(io, started);
  io.out(`deleting ${node}: workflow ${started.workflowId}`);
  io.err(`see it end with: better-compute nodes show ${node}`);
}
