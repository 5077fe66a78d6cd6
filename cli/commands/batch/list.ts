import { Command, Option } from 'commander';
import { batchStates } from '../../../domain/batch/states.ts';
import { showInstant } from '../../../domain/time.ts';
import { proposalOf } from '../../batch/document.ts';
import { writeSafeJson } from '../../batch/files.ts';
import { printable, shown } from '../../batch/printable.ts';
import { batchJson } from '../../batch/summary.ts';
import { type CommonOptions, commonOptions, wholeNumber, withExamples } from '../../command.ts';
import { table } from '../../format.ts';
import type { Ports } from '../../ports.ts';

export interface BatchListOptions extends CommonOptions {
  readonly state: string | null;
  readonly limit: number;
}

export function newBatchList(run: (options: BatchListOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List batches, the newest first')
    .addOption(new Option('--state <state>', 'only those').choices(batchStates))
    .addOption(new Option('--limit <count>', 'at most so many').default(50).argParser(wholeNumber))
    .action((flags: { state?: string; limit: number }) => run({ ...commonOptions(command), ...flags, state: flags.state ?? null }));
  return withExamples(command, ['better-compute batch list', 'better-compute batch list --state pending --json']);
}

export async function batchListRun({ state, limit, json }: BatchListOptions, ports: Ports): Promise<void> {
  const batches = await ports.batches().list({ state: state ?? undefined, limit: Math.min(limit, 1_000) });
  if (json) return writeSafeJson(ports.io, batches.map(batchJson));
  if (batches.length === 0) return ports.io.err('no batches');
  const rows = batches.map((batch) => [
    batch.id,
    batch.state,
    String(batch.size),
    `${batch.approvals.length} of ${batch.required}`,
    showInstant(batch.notAfterMs),
    shown(batch.reason) + (proposalOf(batch) === null ? '' : ' (an agent’s text)'),
  ]);
  ports.io.out(table(['BATCH', 'STATE', 'SIZE', 'APPROVALS', 'UNTIL', 'REASON'], rows));
  const [pending] = batches.filter((batch) => batch.state === 'pending');
  if (pending !== undefined) ports.io.err(printable(`to look at one: better-compute batch show ${pending.id}`));
}
