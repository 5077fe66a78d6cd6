import { Argument, Command } from 'commander';
import { actorOption, assertConfirmed, commonOptions, reasonOption, type SignedOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface NodesRevokeOptions extends SignedOptions {
  readonly node: string;
  readonly yes: boolean;
}

export function newNodesRevoke(ports: Ports, run: (options: NodesRevokeOptions) => Promise<void>): Command {
  const command = new Command('revoke')
    .description('Revoke the identity of a node for good; the machine needs a new token to come back')
    .addArgument(new Argument('<node>', 'node id'))
    .addOption(actorOption(ports.io))
    .addOption(reasonOption())
    .addOption(yesOption())
    .action((node: string, flags: Omit<NodesRevokeOptions, 'json' | 'node'>) => run({ ...commonOptions(command), ...flags, node }));
  return withExamples(command, ['better-compute nodes revoke node-17 --reason "disk stolen" --yes']);
}

export async function nodesRevokeRun({ node, actor, reason, yes, json }: NodesRevokeOptions, { io, api }: Ports): Promise<void> {
  await assertConfirmed(io, yes, `Revoke the identity of ${node}? It cannot be given back.`);
  const started = await api().revokeNode(node, { actor, reason });
  if (json) return writeJson(io, started);
  io.out(`revoking ${node}: workflow ${started.workflowId}`);
  io.err(`see it end with: better-compute nodes show ${node}`);
}
