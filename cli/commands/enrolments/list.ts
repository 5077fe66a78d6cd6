import { Command, Option } from 'commander';
import { type CommonOptions, commonOptions, wholeNumber, withExamples } from '../../command.ts';
import { agoText, table } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface EnrolmentsListOptions extends CommonOptions {
  readonly node: string | null;
  /** Only those that have not ended. */
  readonly open: boolean;
  readonly limit: number;
}

export function newEnrolmentsList(run: (options: EnrolmentsListOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List enrolments over SSH, the newest first')
    .option('--node <node>', 'of this node alone')
    .addOption(new Option('--open', 'only those that have not ended').default(false))
    .addOption(new Option('--limit <n>', 'at most so many').default(100).argParser(wholeNumber))
    .action(({ node, ...flags }: { node?: string; open: boolean; limit: number }) =>
      run({ ...commonOptions(command), ...flags, node: node ?? null }),
    );
  return withExamples(command, ['better-compute enrolments list --open', 'better-compute enrolments list --node web-7 --json']);
}

export async function enrolmentsListRun({ node, open, limit, json }: EnrolmentsListOptions, { io, api }: Ports): Promise<void> {
  const enrolments = await api().listEnrolments({
    limit,
    ...(node === null ? {} : { node }),
    ...(open ? { open: 'true' } : {}),
  });
  if (json) return writeJson(io, { enrolments });
  if (enrolments.length === 0) return io.err('no enrolment; order one with: better-compute nodes enrol');
  io.out(
    table(
      ['ENROLMENT', 'NODE', 'KIND', 'AT', 'STATE', 'SINCE', 'BY', 'END'],
      enrolments.map(({ id, nodeId, kind, login, address, port, state, createdAt, createdBy, endReason }) => [
        id,
        nodeId,
        kind,
        `${login}@${address}:${port}`,
        state,
        agoText(createdAt, io.now()),
        createdBy,
        endReason === '' ? '-' : endReason.slice(0, 60),
      ]),
    ),
  );
}
