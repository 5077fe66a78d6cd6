import { Command, Option } from 'commander';
import { writeSafeJson } from '../../batch/files.ts';
import { actorOption, assertConfirmed, commonOptions, reasonOption, type SignedOptions, withExamples, yesOption } from '../../command.ts';
import type { Ports } from '../../ports.ts';

export interface BatchCancelOptions extends SignedOptions {
  readonly id: string;
  readonly yes: boolean;
  /** As an approver who says no, rather than as whoever asked. */
  readonly reject: boolean;
}

export function newBatchCancel(ports: Ports, run: (options: BatchCancelOptions) => Promise<void>): Command {
  const command = new Command('cancel')
    .description('End a batch: what is held of it is cancelled; what has gone out is not called back')
    .argument('<batch>', 'id of the batch')
    .addOption(reasonOption())
    .addOption(new Option('--reject', 'say no to it, as an approver').default(false))
    .addOption(actorOption(ports.io))
    .addOption(yesOption())
    .action((id: string, flags: Omit<BatchCancelOptions, 'id' | 'json'>) => run({ ...commonOptions(command), ...flags, id }));
  return withExamples(command, [
    'better-compute batch cancel bat_7f3a --reason "wrong rack" --yes',
    'better-compute batch cancel bat_7f3a --reject --reason "not on a Friday"',
  ]);
}

export async function batchCancelRun({ id, yes, reject, actor, reason, json }: BatchCancelOptions, ports: Ports): Promise<void> {
  await assertConfirmed(ports.io, yes, `${reject ? 'reject' : 'cancel'} batch ${id}?`);
  await ports.batches().end(id, reject ? 'reject' : 'cancel', { actor, reason });
  if (json) return writeSafeJson(ports.io, { batch: id, state: 'cancelled' });
  ports.io.out(`batch ${id} ${reject ? 'rejected' : 'cancelled'}`);
}
