import { Argument, Command } from 'commander';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { agoText, facts, instantText } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface NodesShowOptions extends CommonOptions {
  readonly node: string;
}

export function newNodesShow(run: (options: NodesShowOptions) => Promise<void>): Command {
  const command = new Command('show')
    .description('Show one node: identity, session, certificate')
    .addArgument(new Argument('<node>', 'node id'))
    .action((node: string) => run({ ...commonOptions(command), node }));
  return withExamples(command, ['better-compute nodes show node-17']);
}

export async function nodesShowRun(options: NodesShowOptions, { io, api }: Ports): Promise<void> {
  const node = await api().getNode(options.node);
  if (options.json) return writeJson(io, node);
  const { session, certificate } = node;
  io.out(
    facts([
      ['node', `${node.id} (${node.role} of site ${node.siteId}, ${node.state}, generation ${node.generation})`],
      ['host', node.hostname || '-'],
      ['joined', instantText(node.createdAt)],
      ['session', session === null ? 'none' : `${session.gatewayId}, epoch ${session.epoch}, since ${instantText(session.startedAt)}`],
      ['seen', session === null ? '-' : `${agoText(session.lastSeenAt, io.now())}, daemon ${session.daemonVersion || '-'}`],
      ['trust version', String(session?.trustVersion ?? '-')],
      ['certificate', certificate === null ? 'none' : `${certificate.serial}, until ${instantText(certificate.notAfter)}`],
      ...(certificate?.revokedAt == null ? [] : [['revoked', instantText(certificate.revokedAt)] as const]),
      ['open commands', String(node.openCommands)],
    ]),
  );
}
