import { Command } from 'commander';
import { actorOption, assertConfirmed, type CommonOptions, commonOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface JoinsDecideOptions extends CommonOptions {
  readonly what: 'approve' | 'refuse';
  readonly id: string;
  readonly actor: string;
  readonly reason: string;
  readonly yes: boolean;
}

const words = Object.freeze({
  approve: {
    description: 'Admit a machine whose join waits: it is what you expect, and its request is the one that bcd join prints there',
    question: 'It gets an identity of this deployment.',
    example: 'better-compute joins approve 5f0c… --reason "rack 4, ticket 812" --yes',
  },
  refuse: {
    description: 'Refuse a machine whose join waits; the same request is refused from then on, and its token is not used up',
    question: 'The same request is never admitted.',
    example: 'better-compute joins refuse 5f0c… --reason "nobody ordered it" --yes',
  },
});

export function newJoinsDecide(ports: Ports, what: 'approve' | 'refuse', run: (options: JoinsDecideOptions) => Promise<void>): Command {
  const command = new Command(what)
    .description(words[what].description)
    .argument('<join>', 'the id that joins list shows')
    .requiredOption('--reason <text>', 'for the audit trail')
    .addOption(actorOption(ports.io))
    .addOption(yesOption())
    .action((id: string, flags: { actor: string; reason: string; yes: boolean }) => run({ ...commonOptions(command), ...flags, what, id }));
  return withExamples(command, [words[what].example]);
}

export async function joinsDecideRun({ what, id, actor, reason, yes, json }: JoinsDecideOptions, { io, api }: Ports): Promise<void> {
  await assertConfirmed(io, yes, `${what === 'approve' ? 'Approve' : 'Refuse'} join ${id}? ${words[what].question}`);
  const decided = await api().decideJoin(id, what, { actor, reason });
  if (json) return writeJson(io, decided);
  io.out(`${decided.state} join ${decided.id} (${decided.attestor}, ${decided.role} of site ${decided.siteId})`);
}
