import { Command } from 'commander';
import { signApproval } from '../../../pki/quorum/index.ts';
import { kidOf } from '../../../pki/x509/index.ts';
import { withApproverKey } from '../../batch/approver-key.ts';
import { writeSafeJson } from '../../batch/files.ts';
import { printable } from '../../batch/printable.ts';
import { commonOptions, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { enforceReview, type RawReviewFlags, type ReviewFlags, settledFlags, stopForReading, withReviewFlags } from './review-flags.ts';

export interface BatchApproveOptions extends ReviewFlags {
  readonly id: string;
}

export function newBatchApprove(run: (options: BatchApproveOptions) => Promise<void>): Command {
  const command = withReviewFlags(
    new Command('approve')
      .description('Review a batch, whatever the control plane says of it, and sign it')
      .argument('<batch>', 'id of the batch'),
  ).action((id: string, flags: RawReviewFlags) => run({ ...commonOptions(command), ...settledFlags(flags), id }));
  return withExamples(command, [
    'better-compute batch approve bat_7f3a --key alice.pem',
    'better-compute batch approve bat_7f3a --key alice.pem --expect change-4711.txt --yes',
    'better-compute batch approve bat_7f3a --key "pkcs11:token=alice;object=approver" --root 9f2c…',
  ]);
}

/** BATCLI-001 to BATCLI-035: nothing is signed before everything is reviewed, and nothing is sent that was not signed here. */
export async function batchApproveRun(options: BatchApproveOptions, ports: Ports): Promise<void> {
  const client = ports.batches();
  await withApproverKey(options.key, ports.io.env, async (signer) => {
    const review = await enforceReview(options, ports, (check) => client.collect(options.id, check));
    const kid = kidOf(signer.spki);
    if (review.batch.approvals.some((approval) => approval.kid === kid)) return reportKnown(kid, options, ports);
    if (!options.yes) return stopForReading(review, options, ports);
    const { sig } = await signApproval(signer, review.facts);
    const answer = await client.approve(options.id, { kid, sig: Buffer.from(sig).toString('base64url') });
    report(answer, { kid, id: options.id }, { options, ports });
  });
}

function reportKnown(kid: string, options: BatchApproveOptions, { io }: Ports): void {
  if (options.json) return writeSafeJson(io, { signed: false, already: true, kid, batch: options.id });
  io.out(`key ${kid.slice(0, 16)} has already approved batch ${options.id}; nothing was signed`);
}

interface Approved {
  readonly kid: string;
  readonly id: string;
}

/** The api's words about what follows; the signature itself is a fact. */
function report(answer: unknown, { kid, id }: Approved, { options, ports: { io } }: { options: BatchApproveOptions; ports: Ports }): void {
  const { have, required, released } = (answer ?? {}) as { have?: unknown; required?: unknown; released?: unknown };
  if (options.json) return writeSafeJson(io, { signed: true, kid, batch: id, have, required, released });
  const count = typeof have === 'number' && typeof required === 'number' ? `: ${have} of ${required} approvals` : '';
  io.out(printable(`batch ${id} approved by key ${kid.slice(0, 16)}${count}${released === true ? ', its commands go out' : ''}`));
}
