/** The flags of the enforced review; approve and sign share them, and the defaults refuse (BATCLI-048). */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { isTrustDomain } from '../../../pki/x509/index.ts';
import type { BatchAnswer, BatchDocument } from '../../batch/document.ts';
import { readExpectation } from '../../batch/expectation.ts';
import { safeJson, writeNew, writeSafeJson } from '../../batch/files.ts';
import { operationsDocument } from '../../batch/operations.ts';
import {
  assertReviewable,
  assertSignable,
  defaultMaxHours,
  mostMaxHours,
  type Review,
  type ReviewOptions,
  reviewBatch,
} from '../../batch/review.ts';
import { summaryJson, summaryText } from '../../batch/summary.ts';
import { type CommonOptions, yesOption } from '../../command.ts';
import type { Ports } from '../../ports.ts';

export interface ReviewFlags extends CommonOptions {
  readonly key: string;
  readonly yes: boolean;
  readonly root: string | null;
  readonly expect: string | null;
  readonly allowUnbound: boolean;
  readonly allowOpaque: boolean;
  readonly maxHours: number;
  readonly operationsOut: string | null;
  readonly trustDomain: string | null;
}

/** As commander gives them. */
export type RawReviewFlags = { readonly [name in keyof Omit<ReviewFlags, 'json'>]?: ReviewFlags[name] } & { readonly key: string };

export const keyOption = (): Option =>
  new Option('--key <key>', 'your private key: a PEM file, or pkcs11:… or external:… of a signer').makeOptionMandatory();

export const trustDomainOption = (): Option =>
  new Option('--trust-domain <name>', 'the deployment you mean (default: BETTER_COMPUTE_TRUST_DOMAIN)').argParser(parseTrustDomain);

export function parseTrustDomain(value: string): string {
  if (isTrustDomain(value)) return value;
  throw new InvalidArgumentError('It is no trust domain.');
}

export const withReviewFlags = (command: Command): Command =>
  command
    .addOption(keyOption())
    .addOption(yesOption().default(false).hideHelp(false))
    .addOption(new Option('--root <hex>', 'sign only if the batch still has this root').argParser(parseRoot))
    .option('--expect <file>', 'sign only if the batch holds exactly these: subjects one a line, or JSON')
    .option('--allow-unbound', 'sign leaves that admit any payload', false)
    .option('--allow-opaque', 'sign payloads that this program cannot show', false)
    .addOption(
      new Option('--max-hours <hours>', `longest window to sign, at most ${mostMaxHours}`)
        .default(defaultMaxHours)
        .argParser(parseMaxHours),
    )
    .option('--operations-out <file>', 'write every operation in full, with its subjects')
    .addOption(trustDomainOption());

function parseRoot(value: string): string {
  if (/^[0-9a-f]{64}$/i.test(value)) return value.toLowerCase();
  throw new InvalidArgumentError('It must be 64 hex digits.');
}

function parseMaxHours(value: string): number {
  if (/^[1-9]\d{0,2}$/.test(value) && Number(value) <= mostMaxHours) return Number(value);
  throw new InvalidArgumentError(`It must be a whole number from 1 to ${mostMaxHours}.`);
}

export const settledFlags = (flags: RawReviewFlags): Omit<ReviewFlags, 'json'> => ({
  key: flags.key,
  yes: flags.yes ?? false,
  root: flags.root ?? null,
  expect: flags.expect ?? null,
  allowUnbound: flags.allowUnbound ?? false,
  allowOpaque: flags.allowOpaque ?? false,
  maxHours: flags.maxHours ?? defaultMaxHours,
  operationsOut: flags.operationsOut ?? null,
  trustDomain: flags.trustDomain ?? null,
});

/** Files are read before the network is asked: a name that is mistyped costs nothing. */
export const reviewOptionsOf = (flags: ReviewFlags, { io }: Ports): ReviewOptions => ({
  root: flags.root,
  expected: flags.expect === null ? null : readExpectation(flags.expect),
  allowUnbound: flags.allowUnbound,
  allowOpaque: flags.allowOpaque,
  maxHours: flags.maxHours,
  trustDomain: flags.trustDomain ?? (io.env['BETTER_COMPUTE_TRUST_DOMAIN'] || null),
  now: io.now(),
});

/**
 * Reviews, shows, and refuses. Only what it returns may be signed.
 *
 * @param collect reads the batch; it is given the checks that come before the scope
 */
export async function enforceReview(
  flags: ReviewFlags,
  ports: Ports,
  collect: (check: (batch: BatchAnswer) => void) => Promise<BatchDocument>,
): Promise<Review> {
  const options = reviewOptionsOf(flags, ports);
  const review = reviewBatch(await collect((batch) => assertReviewable(batch, options)), options);
  if (!flags.json) ports.io.err(summaryText(review, options.now));
  if (flags.operationsOut !== null) writeNew(flags.operationsOut, `${safeJson(operationsDocument(review.operations))}\n`);
  if (flags.json && review.refusals.length > 0) writeSafeJson({ out: ports.io.err }, summaryJson(review));
  assertSignable(review);
  return review;
}

/** Without --yes: the summary, and the root to come back with (BATCLI-014). */
export function stopForReading(review: Review, flags: ReviewFlags, { io }: Ports): void {
  if (flags.json) return writeSafeJson(io, { signed: false, ...summaryJson(review) });
  io.out(review.batch.root);
  io.err(`nothing is signed yet; to sign exactly this: add --root ${review.batch.root} --yes`);
}
