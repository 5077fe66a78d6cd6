import { Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { signApproval } from '../../../pki/quorum/index.ts';
import { kidOf } from '../../../pki/x509/index.ts';
import { withApproverKey } from '../../batch/approver-key.ts';
import { type BatchAnswer, type BatchDocument, readDocument } from '../../batch/document.ts';
import { safeJson, writeNew } from '../../batch/files.ts';
import type { Review } from '../../batch/review.ts';
import { commonOptions, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { enforceReview, type RawReviewFlags, type ReviewFlags, settledFlags, stopForReading, withReviewFlags } from './review-flags.ts';

export interface BatchSignOptions extends ReviewFlags {
  /** null: the document says. */
  readonly id: string | null;
  readonly document: string | null;
  readonly out: string | null;
}

interface SignFlags extends RawReviewFlags {
  readonly document?: string;
  readonly out?: string;
}

export function newBatchSign(run: (options: BatchSignOptions) => Promise<void>): Command {
  const command = withReviewFlags(
    new Command('sign')
      .description('Review a batch as approve does, and write the approval instead of sending it; with --document without a network')
      .argument('[batch]', 'id of the batch')
      .option('--document <file>', 'the batch as batch show --export wrote it')
      .option('--out <file>', 'where the approval goes (default: standard output)'),
  ).action((id: string | undefined, flags: SignFlags) =>
    run({ ...commonOptions(command), ...settledFlags(flags), id: id ?? null, document: flags.document ?? null, out: flags.out ?? null }),
  );
  return withExamples(command, [
    'better-compute batch sign --document bat_7f3a.json --key alice.pem --yes --out approval.json',
    'better-compute batch sign bat_7f3a --key alice.pem --yes --out approval.json',
    'temporal workflow update execute --workflow-id batch/bat_7f3a --name approve --input-file approval.json',
  ]);
}

/** What is handed over: kid and sig are the approval, the rest says of what, for people and for whoever refuses the wrong file. */
export interface ApprovalFile {
  readonly kid: string;
  readonly sig: string;
  readonly batchId: string;
  readonly root: string;
  readonly size: number;
  readonly notAfterMs: number;
  readonly trustDomain: string;
}

/** BATCLI-044, A-PKI-30: the same review, and the signature in a file. */
export async function batchSignRun(options: BatchSignOptions, ports: Ports): Promise<void> {
  await withApproverKey(options.key, ports.io.env, async (signer) => {
    const review = await enforceReview(options, ports, (check) => collect(options, ports, check));
    const kid = kidOf(signer.spki);
    if (review.batch.approvals.some((approval) => approval.kid === kid)) {
      throw new ControlError('INVALID_STATE', `key ${kid.slice(0, 16)} has already approved batch ${review.batch.id}; nothing was signed`, {
        details: { reason: 'already-approved' },
      });
    }
    if (!options.yes) return stopForReading(review, options, ports);
    const { sig } = await signApproval(signer, review.facts);
    write({ kid, sig: Buffer.from(sig).toString('base64url'), ...statement(review) }, options, ports);
  });
}

async function collect({ id, document }: BatchSignOptions, ports: Ports, check: (batch: BatchAnswer) => void): Promise<BatchDocument> {
  if (document === null) {
    if (id === null)
      throw new ControlError('INVALID_INPUT', 'neither a batch nor --document is named', {
        details: { reason: 'no-batch', hint: 'name the id of the batch, or its exported file' },
      });
    return ports.batches().collect(id, check);
  }
  const read = readDocument(document);
  if (id === null || id === read.batch.id) return read;
  throw new ControlError('INVALID_INPUT', `${document} is of batch ${read.batch.id}, not ${id}`, { details: { reason: 'other-batch' } });
}

const statement = ({ batch: { id, root, size, notAfterMs, trustDomain } }: Review): Omit<ApprovalFile, 'kid' | 'sig'> => ({
  batchId: id,
  root,
  size,
  notAfterMs,
  trustDomain,
});

function write(approval: ApprovalFile, { out }: BatchSignOptions, { io }: Ports): void {
  if (out === null) return io.out(safeJson(approval));
  writeNew(out, `${safeJson(approval)}\n`);
  io.out(out);
  io.err(`hand it over: better-compute batch submit ${out}`);
}
