import { Command } from 'commander';
import { showInstant } from '../../../domain/time.ts';
import { type BatchAnswer, type BatchDocument, encodeDocument, proposalOf } from '../../batch/document.ts';
import { safeJson, writeNew, writeSafeJson } from '../../batch/files.ts';
import { operationsDocument, operationsOf } from '../../batch/operations.ts';
import { printable, shown } from '../../batch/printable.ts';
import { proveScope } from '../../batch/review.ts';
import { batchJson } from '../../batch/summary.ts';
import { treeText } from '../../batch/tree.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { facts } from '../../format.ts';
import type { Ports } from '../../ports.ts';

export interface BatchShowOptions extends CommonOptions {
  readonly id: string;
  readonly tree: boolean;
  readonly export: string | null;
  readonly operationsOut: string | null;
}

export function newBatchShow(run: (options: BatchShowOptions) => Promise<void>): Command {
  const command = new Command('show')
    .description('Show a batch; with --tree its whole scope, with --export as a file for a machine without a network')
    .argument('<batch>', 'id of the batch')
    .option('--tree', 'every operation, by kind and payload, with the places of its leaves', false)
    .option('--export <file>', 'write what batch sign --document reads')
    .option('--operations-out <file>', 'write every operation in full, with its subjects')
    .action((id: string, flags: { tree: boolean; export?: string; operationsOut?: string }) =>
      run({ ...commonOptions(command), id, tree: flags.tree, export: flags.export ?? null, operationsOut: flags.operationsOut ?? null }),
    );
  return withExamples(command, [
    'better-compute batch show bat_7f3a',
    'better-compute batch show bat_7f3a --tree',
    'better-compute batch show bat_7f3a --export bat_7f3a.json',
  ]);
}

/** BATCLI-047. The scope is recomputed whenever it is read: a tree of other leaves is not drawn. */
export async function batchShowRun(options: BatchShowOptions, ports: Ports): Promise<void> {
  const client = ports.batches();
  const needsScope = options.tree || options.export !== null || options.operationsOut !== null;
  const document = needsScope ? await client.collect(options.id) : { batch: await client.get(options.id), leaves: [] };
  if (needsScope) {
    proveScope(document.batch, document.leaves);
    writeFiles(document, options);
  }
  if (options.json) return writeSafeJson(ports.io, batchJson(document.batch));
  ports.io.out(batchText(document.batch));
  if (options.tree) ports.io.out(`\n${treeText(document)}`);
  if (options.export !== null)
    ports.io.err(`written: ${options.export}; sign it anywhere: better-compute batch sign --document ${options.export} --key KEY`);
}

function writeFiles(document: BatchDocument, { export: path, operationsOut }: BatchShowOptions): void {
  if (path !== null) writeNew(path, encodeDocument(document));
  if (operationsOut !== null) writeNew(operationsOut, `${safeJson(operationsDocument(operationsOf(document.leaves)))}\n`);
}

function batchText(batch: BatchAnswer): string {
  const proposal = proposalOf(batch);
  return [
    facts([
      ['batch', batch.id],
      ['state', batch.state],
      ['deployment', printable(batch.trustDomain)],
      ['tenant', shown(batch.tenantId)],
      ['asked for by', shown(batch.createdBy)],
      ['reason', printable(batch.reason)],
      ['size', `${batch.size} operation(s)`],
      ['approvals', `${batch.approvals.length} of ${batch.required}`],
      ['window', `until ${showInstant(batch.notAfterMs)}`],
      ['root', batch.root],
    ]),
    ...(proposal === null ? [] : ['', printable(proposal)]),
    ...batch.approvals.map(({ kid, at }, index) => `${index === 0 ? '\n' : ''}approved by ${kid.slice(0, 16)} at ${showInstant(at)}`),
    ...(batch.state === 'pending' ? ['', `to approve it: better-compute batch approve ${batch.id} --key KEY`] : []),
  ].join('\n');
}
