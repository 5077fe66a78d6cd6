import { Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { problemsOfQuorum, signApproverSet } from '../../../pki/quorum/index.ts';
import { approverSetDigest, noQuorum, type QuorumFields } from '../../../pki/trust/index.ts';
import { readApproverPublicKey, withApproverKey } from '../../batch/approver-key.ts';
import { safeJson, writeNew } from '../../batch/files.ts';
import { ownTrustDomain } from '../../batch/trust-domain.ts';
import { type CommonOptions, commonOptions, wholeNumber, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { keyOption, parseTrustDomain } from './review-flags.ts';

type Tiers = QuorumFields['tiers'];

export interface BatchSignApproversOptions extends CommonOptions {
  readonly key: string;
  readonly epoch: number;
  /** null: the set without approvers, which ends the quorum. */
  readonly approvers: readonly string[] | null;
  readonly threshold: number;
  readonly tiers: Tiers;
  readonly unbatched: number;
  readonly trustDomain: string | null;
  readonly out: string | null;
}

interface Flags {
  readonly key: string;
  readonly epoch: number;
  readonly approvers?: readonly string[];
  readonly remove: boolean;
  readonly threshold?: number;
  readonly tiers: Tiers;
  readonly unbatched: number;
  readonly trustDomain?: string;
  readonly out?: string;
}

export function newBatchSignApprovers(run: (options: BatchSignApproversOptions) => Promise<void>): Command {
  const command = new Command('sign-approvers')
    .description('Sign a new approver set for its epoch: current approvers for the change, new ones for their own keys')
    .addOption(keyOption())
    .addOption(
      new Option('--epoch <number>', 'the epoch of the new set: above the published one').makeOptionMandatory().argParser(wholeNumber),
    )
    .addOption(new Option('--approvers <files>', 'the .pub files of all approvers of the new set, comma-separated').argParser(parseList))
    .option('--remove', 'sign the end of the quorum: no approvers', false)
    .addOption(new Option('--threshold <count>', 'distinct approvers that a batch needs').argParser(wholeNumber))
    .addOption(
      new Option('--tiers <tiers>', 'smaller batches need fewer: maxScopeSize:threshold, comma-separated, such as 5:1')
        .default([], 'none')
        .argParser(parseTiers),
    )
    .addOption(
      new Option('--unbatched <count>', 'destructive commands an hour that a machine runs without a batch')
        .default(0)
        .argParser(parseCount),
    )
    .addOption(
      new Option(
        '--trust-domain <name>',
        'the deployment (default: BETTER_COMPUTE_TRUST_DOMAIN, else that of the key bundle here)',
      ).argParser(parseTrustDomain),
    )
    .option('--out <file>', 'where the signature goes (default: standard output)')
    .action((flags: Flags) => run({ ...commonOptions(command), ...settled(flags) }));
  return withExamples(command, [
    'better-compute batch sign-approvers --key alice.pem --epoch 2 \\',
    '    --approvers alice.pem.pub,bob.pem.pub,dave.pem.pub --threshold 2 --tiers 5:1 --unbatched 0',
    'better-compute batch sign-approvers --key alice.pem --epoch 3 --remove --out alice-3.json',
  ]);
}

const parseList = (value: string): string[] =>
  value
    .split(',')
    .map((path) => path.trim())
    .filter((path) => path !== '');

function parseTiers(value: string): Tiers {
  return parseList(value).map((tier) => {
    const match = /^(\d{1,10}):(\d{1,10})$/.exec(tier);
    if (match === null) throw new InvalidArgumentError('A tier is maxScopeSize:threshold, such as 5:1.');
    return { maxScopeSize: Number(match[1]), threshold: Number(match[2]) };
  });
}

function parseCount(value: string): number {
  if (/^\d{1,6}$/.test(value)) return Number(value);
  throw new InvalidArgumentError('It must be a whole number from 0.');
}

const flags = (message: string, hint: string): ControlError =>
  new ControlError('INVALID_INPUT', message, { details: { reason: 'flags', hint } });

function settled({ approvers, remove, threshold, ...rest }: Flags): Omit<BatchSignApproversOptions, 'json'> {
  const set = { ...rest, trustDomain: rest.trustDomain ?? null, out: rest.out ?? null };
  if (remove) {
    if (approvers === undefined && threshold === undefined && rest.tiers.length === 0 && rest.unbatched === 0)
      return { ...set, approvers: null, threshold: 0 };
    throw flags(
      '--remove ends the quorum: nothing else of a set goes with it',
      'leave --approvers, --threshold, --tiers and --unbatched away',
    );
  }
  if (approvers === undefined || approvers.length === 0 || threshold === undefined)
    throw flags('a set needs --approvers and --threshold', 'name every approver of the new set, or --remove');
  return { ...set, approvers, threshold };
}

/** BATCLI-039 to BATCLI-043, H-10. */
export async function batchSignApproversRun(options: BatchSignApproversOptions, ports: Ports): Promise<void> {
  const quorum = setOf(options);
  const trustDomain = ownTrustDomain(options.trustDomain, ports);
  const { epoch } = options;
  await withApproverKey(options.key, ports.io.env, async (signer) => {
    const { kid, sig } = await signApproverSet(signer, { epoch, quorum, trustDomain });
    const text = safeJson({
      epoch,
      trustDomain,
      approverSetSha256: approverSetDigest(quorum),
      kid,
      sig: Buffer.from(sig).toString('base64url'),
      quorum: {
        approvers: quorum.approverKeys.map((key) => ({ kid: key.kid, spki: Buffer.from(key.spki).toString('base64') })),
        threshold: quorum.approverThreshold,
        tiers: quorum.tiers,
        unbatchedDestructivePerHour: quorum.unbatchedDestructivePerHour,
      },
    });
    if (options.out === null) ports.io.out(text);
    else {
      writeNew(options.out, `${text}\n`);
      ports.io.out(options.out);
    }
    ports.io.err(
      `signed: ${quorum.approverKeys.length} approver(s), threshold ${quorum.approverThreshold}, epoch ${epoch}, ${trustDomain}`,
    );
  });
}

/** @throws INVALID_INPUT (`approvers`) for a set that nobody could publish */
function setOf({ approvers, threshold, tiers, unbatched }: BatchSignApproversOptions): QuorumFields {
  const quorum: QuorumFields = {
    ...noQuorum,
    approverKeys: (approvers ?? []).map(readApproverPublicKey),
    approverThreshold: threshold,
    tiers,
    unbatchedDestructivePerHour: unbatched,
  };
  const problems = problemsOfQuorum(quorum);
  if (problems.length === 0) return quorum;
  throw new ControlError('INVALID_INPUT', `the set cannot be used: ${problems.join('; ')}`, { details: { reason: 'approvers', problems } });
}
