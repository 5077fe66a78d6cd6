/** `nodes revoke` and `nodes delete`: one command in two degrees, a table of what differs. */
import { Argument, Command } from 'commander';
import { actorOption, assertConfirmed, commonOptions, reasonOption, type SignedOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface TakeAwayOptions extends SignedOptions {
  readonly node: string;
  readonly yes: boolean;
}

interface Degree {
  readonly description: string;
  question(node: string): string;
  readonly call: 'revokeNode' | 'deleteNode';
  /** "revoking node-17". */
  readonly doing: string;
  readonly example: string;
}

const degrees = Object.freeze({
  revoke: {
    description: 'Revoke the identity of a node for good; the machine needs a new token to come back',
    question: (node) => `Revoke the identity of ${node}? It cannot be given back.`,
    call: 'revokeNode',
    doing: 'revoking',
    example: 'better-compute nodes revoke node-17 --reason "disk stolen" --yes',
  },
  delete: {
    description: 'Delete a node: its identity is revoked, its history stays, and its id never joins again',
    question: (node) => `Delete ${node}? Its id can never join again.`,
    call: 'deleteNode',
    doing: 'deleting',
    example: 'better-compute nodes delete node-17 --reason "scrapped" --yes',
  },
} satisfies Readonly<Record<string, Degree>>);

type TakeAway = keyof typeof degrees;

type Run = (options: TakeAwayOptions) => Promise<void>;

const newTakeAway = (degree: TakeAway, ports: Ports, run: Run): Command => {
  const { description, example } = degrees[degree];
  const command = new Command(degree)
    .description(description)
    .addArgument(new Argument('<node>', 'node id'))
    .addOption(actorOption(ports.io))
    .addOption(reasonOption())
    .addOption(yesOption())
    .action((node: string, flags: Omit<TakeAwayOptions, 'json' | 'node'>) => run({ ...commonOptions(command), ...flags, node }));
  return withExamples(command, [example]);
};

async function takeAwayRun(degree: TakeAway, { node, actor, reason, yes, json }: TakeAwayOptions, { io, api }: Ports): Promise<void> {
  const { question, call, doing }: Degree = degrees[degree];
  await assertConfirmed(io, yes, question(node));
  const started = await api()[call](node, { actor, reason });
  if (json) return writeJson(io, started);
  io.out(`${doing} ${node}: workflow ${started.workflowId}`);
  io.err(`see it end with: better-compute nodes show ${node}`);
}

export const newNodesRevoke = (ports: Ports, run: Run): Command => newTakeAway('revoke', ports, run);
export const newNodesDelete = (ports: Ports, run: Run): Command => newTakeAway('delete', ports, run);
export const nodesRevokeRun = (options: TakeAwayOptions, ports: Ports): Promise<void> => takeAwayRun('revoke', options, ports);
export const nodesDeleteRun = (options: TakeAwayOptions, ports: Ports): Promise<void> => takeAwayRun('delete', options, ports);
