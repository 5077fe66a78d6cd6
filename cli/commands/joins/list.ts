import { Command, Option } from 'commander';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { agoText, table } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface JoinsListOptions extends CommonOptions {
  /** Those that were decided too. */
  readonly all: boolean;
}

export function newJoinsList(run: (options: JoinsListOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description("List the machines whose join waits for an operator's word, the oldest first")
    .addOption(new Option('--all', 'those that were decided lately too').default(false))
    .action(({ all }: { all: boolean }) => run({ ...commonOptions(command), all }));
  return withExamples(command, ['better-compute joins list', 'better-compute joins list --all --json']);
}

export async function joinsListRun({ all, json }: JoinsListOptions, { io, api }: Ports): Promise<void> {
  const joins = await api().listJoins(all ? null : 'waiting');
  if (json) return writeJson(io, { joins });
  if (joins.length === 0) return io.err('no join waits; which do is said by BETTER_COMPUTE_JOIN_APPROVAL of the api');
  io.out(
    table(
      ['JOIN', 'BY', 'AS', 'SITE', 'NODE', 'REQUEST', 'HOST', 'SINCE', 'ASKED', 'STATE'],
      joins.map((join) => [
        join.id,
        join.attestor,
        join.role,
        join.siteId,
        join.nodeId ?? '(new)',
        join.csrSha256.slice(0, 16),
        join.hardware['hostname'] ?? '-',
        agoText(join.firstAskedAt, io.now()),
        agoText(join.lastAskedAt, io.now()),
        join.state === 'waiting' ? 'waiting' : `${join.state} by ${join.decidedBy}`,
      ]),
    ),
  );
}
