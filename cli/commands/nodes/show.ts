import { Argument, Command } from 'commander';
import type { NodeAnswer } from '../../api-client.ts';
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
      ...sessionFacts(session, io.now()),
      ['certificate', certificate === null ? 'none' : `${certificate.serial}, until ${instantText(certificate.notAfter)}`],
      ...(certificate?.revokedAt == null ? [] : [['revoked', instantText(certificate.revokedAt)] as const]),
      ...sectionFacts(session),
      ['open commands', String(node.openCommands)],
    ]),
  );
}

type Session = NodeAnswer['session'];
type Fact = readonly [string, string];

const sessionFacts = (session: Session, now: number): Fact[] => [
  ['session', session === null ? 'none' : `${session.gatewayId}, epoch ${session.epoch}, since ${instantText(session.startedAt)}`],
  ['seen', session === null ? '-' : `${agoText(session.lastSeenAt, now)}, daemon ${session.daemonVersion || '-'}`],
  ['trust version', String(session?.trustVersion ?? '-')],
];

/** What of the desired state is not applied stands below its generation. */
const sectionFacts = (session: Session): Fact[] => [
  ['desired state', session?.specGeneration == null ? '-' : `generation ${session.specGeneration}`],
  ...(session?.sections ?? []).map(({ section, state, detail }): Fact => [`  ${section}`, `${state}${detail === '' ? '' : `: ${detail}`}`]),
];
