/**
 * Which approver set a daemon holds after it was offered a trust bundle: the accept rule (APPR-008 to APPR-019, DMN-022 to DMN-026,
 * PIN-007, PIN-015, H-10), pure. The rule in words stands at approver_set_epoch in trust.proto.
 *
 * What it rules out: a JoinService that names other approvers (nobody but the held approvers changes the set); an old set with its
 * genuine signatures, played again (the epoch never goes back); an api that hands a fresh machine its own approvers (the pin).
 */
import type { TrustBundle } from '../../proto/index.ts';
import { approverSetDigest, type QuorumFields } from '../trust/content.ts';
import { quorumChangesOf, quorumOf, signersOfSet } from './approver-set.ts';
import { problemsOfQuorum } from './validate-quorum.ts';

export type SetRefusal = 'stale-epoch' | 'approver-set-unsigned' | 'pin-mismatch' | 'malformed-set';

export interface HeldSet {
  /** null: it holds no approver keys. */
  readonly quorum: QuorumFields | null;
  /** Of the last set it held, kept through a removal; 0 before the first. */
  readonly epoch: number;
}

export type SetDecision =
  | { readonly kind: 'keep' }
  /** A set without keys is a removal of the quorum. */
  | { readonly kind: 'take'; readonly quorum: QuorumFields; readonly epoch: number }
  /** The bundle's own set is not taken. `walked` is where the changes it lists led before that; null when nowhere. */
  | { readonly kind: 'refuse'; readonly reason: SetRefusal; readonly detail: string; readonly walked: HeldSet | null };

export interface DecideSetOptions {
  /** The daemon's own. */
  readonly trustDomain: string;
  /** Digest of the first set it may take, lower-case hex. */
  readonly pin?: string;
}

type Step =
  | { readonly kind: 'keep' }
  | { readonly kind: 'take'; readonly held: HeldSet }
  | { readonly kind: 'refuse'; readonly reason: SetRefusal; readonly detail: string };

/** Most changes that are looked at, whatever a bundle lists. */
export const maxWalkedChanges = 16;

export function decideApproverSet(held: HeldSet, offered: TrustBundle, options: DecideSetOptions): SetDecision {
  const walked = walk(held, offered, options);
  const last = step(walked, quorumOf(offered), options);
  if (last.kind === 'refuse') return { ...last, walked: walked === held ? null : walked };
  const now = last.kind === 'take' ? last.held : walked;
  return now === held ? { kind: 'keep' } : { kind: 'take', quorum: now.quorum ?? quorumOf(offered), epoch: now.epoch };
}

/**
 * Through the changes that the bundle lists, as far as each is signed by the one before it. A daemon that holds nothing and is pinned to
 * nothing has no set to start from: it takes the bundle's own.
 */
function walk(held: HeldSet, offered: TrustBundle, options: DecideSetOptions): HeldSet {
  if (held.quorum === null && options.pin === undefined) return held;
  let at = held;
  for (const change of quorumChangesOf(offered).slice(-maxWalkedChanges)) {
    const next = step(at, change, options);
    if (next.kind === 'take') at = next.held;
  }
  return at;
}

const refuse = (reason: SetRefusal, detail: string): Step => ({ kind: 'refuse', reason, detail });
const keep: Step = Object.freeze({ kind: 'keep' });

function step(held: HeldSet, offered: QuorumFields, options: DecideSetOptions): Step {
  if (offered.approverSetEpoch > Number.MAX_SAFE_INTEGER)
    return refuse('malformed-set', `epoch ${offered.approverSetEpoch} cannot be counted`);
  return held.quorum === null
    ? stepWithoutSet(held, offered, options)
    : stepFromSet({ quorum: held.quorum, epoch: held.epoch }, offered, options);
}

const take = (quorum: QuorumFields, epoch: number): Step => ({
  kind: 'take',
  held: { quorum: quorum.approverKeys.length === 0 ? null : quorum, epoch },
});

/** Without keys: the first set as it comes, or only the pinned one, never at or below an epoch that was held (APPR-015). */
function stepWithoutSet({ epoch }: HeldSet, offered: QuorumFields, { pin }: DecideSetOptions): Step {
  const digest = approverSetDigest(offered);
  if (pin !== undefined && digest !== pin) {
    return refuse('pin-mismatch', `this machine is pinned to approver set ${pin.slice(0, 12)}, not to ${digest.slice(0, 12)}`);
  }
  if (offered.approverKeys.length === 0) return keep;
  const offeredEpoch = Number(offered.approverSetEpoch);
  if (epoch > 0 && offeredEpoch <= epoch) return refuse('stale-epoch', `epoch ${offeredEpoch} is offered, epoch ${epoch} was held`);
  return take(offered, offeredEpoch);
}

/** With keys: nothing but the held threshold of held keys moves it, to another set or to another epoch (APPR-008, APPR-009). */
function stepFromSet(held: { quorum: QuorumFields; epoch: number }, offered: QuorumFields, { trustDomain }: DecideSetOptions): Step {
  const epoch = Number(offered.approverSetEpoch);
  const isSame = approverSetDigest(offered) === approverSetDigest(held.quorum);
  if (epoch <= held.epoch)
    return isSame ? keep : refuse('stale-epoch', `another set at epoch ${epoch} is offered, epoch ${held.epoch} is held`);
  const signed = signersOfSet(held.quorum, { epoch, quorum: offered, trustDomain }, offered.approverSetSignatures).length;
  const threshold = held.quorum.approverThreshold;
  if (threshold < 1 || signed < threshold) {
    if (isSame) return keep;
    return refuse(
      'approver-set-unsigned',
      `${signed} of ${threshold} held approvers signed the set of epoch ${epoch}${threshold < 1 ? ': a threshold of 0 admits no change' : ''}`,
    );
  }
  const [problem] = problemsOfQuorum(offered);
  return problem === undefined ? take(offered, epoch) : refuse('malformed-set', problem);
}
