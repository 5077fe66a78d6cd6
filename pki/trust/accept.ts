/**
 * A daemon's decision on an offered trust bundle, pure: (what it holds, what is offered, now) → take, ignore or refuse. The
 * same code runs in bcd and in the simulated fleet.
 *
 * The signature is proven before (bundle.ts). This file answers what a valid signature alone must not decide: an older bundle
 * replayed by a relay (TRUST-002), trust emptied out (H-06), and a root taken away while commands under it may still be on
 * their way (C31): a root that signed leaves only when the bundle says since when it no longer signs, and that is long enough
 * ago, or an operator answers for it by name.
 *
 * The approver set is decided apart (quorum/decide-set.ts): a set that is refused leaves the held one in force, and the rest of the
 * bundle, roots and version, is taken all the same (DMN-024, APPR-017).
 */
import type { RemovedRoot, TrustBundle } from '../../proto/index.ts';
import { decideApproverSet, type SetDecision, type SetRefusal } from '../quorum/decide-set.ts';
import { certificateId, parseCertificate } from '../x509/index.ts';
import { noQuorum, type QuorumFields } from './content.ts';

/** What a daemon keeps; built by acceptTrustBundle only. */
export interface HeldTrust {
  readonly version: number;
  readonly trustDomain: string;
  /** DER, in the order received. */
  readonly roots: readonly Uint8Array[];
  /** Once true, always true: it has held a root (H-06). */
  readonly signaturesRequired: boolean;
  readonly takenAt: number;
  /** The approver set that binds this node; without keys: none. It may be older than the bundle's own. */
  readonly quorum: QuorumFields;
  /** Of that set, kept through its removal; 0 before the first. */
  readonly approverSetEpoch: number;
  /** The whole bundle (JOIN-025). */
  readonly bundle: TrustBundle;
}

export interface AcceptOptions {
  readonly now: number;
  /** Least time between the switch away from a root and its removal. */
  readonly minOverlapMs: number;
  /** The daemon's own trust domain; by default that of the bundle it holds. */
  readonly trustDomain?: string;
  /** Digest of the first approver set this node may take, lower-case hex (PIN-007). */
  readonly approverSetPin?: string;
}

/** Why the bundle's own approver set was not taken; for the log line trust.quorum-refused (DMN-025). */
export interface QuorumRefusal {
  readonly reason: SetRefusal;
  readonly detail: string;
}

export type RefusalReason =
  | 'wrong-trust-domain'
  | 'bad-version'
  | 'no-roots'
  | 'malformed-root'
  | 'root-removed-unexplained'
  | 'root-removed-too-early';

export type TrustAcceptance =
  | { readonly kind: 'take'; readonly held: HeldTrust; readonly quorumRefused: QuorumRefusal | null }
  | { readonly kind: 'ignore'; readonly reason: 'same-version' | 'older-version' }
  | { readonly kind: 'refuse'; readonly reason: RefusalReason; readonly detail: string };

type Refusal = Extract<TrustAcceptance, { kind: 'refuse' }>;

/** @param held null before the first bundle */
export function acceptTrustBundle(held: HeldTrust | null, offered: TrustBundle, options: AcceptOptions): TrustAcceptance {
  return (
    refuseDomain(held, offered, options) ?? // 1. of this deployment
    refuseVersion(offered) ?? //               2. a version that can be counted
    ignoreOlder(held, offered) ?? //           3. newer than what is held
    refuseEmpty(held, offered) ?? //           4. trust is never emptied
    refuseMalformed(offered) ?? //             5. every root is an authority
    refuseRemovals(held, offered, options) ?? // 6. no root leaves unexplained or too early
    take(held, offered, options)
  );
}

const refuse = (reason: RefusalReason, detail: string): Refusal => ({ kind: 'refuse', reason, detail });

function refuseDomain(held: HeldTrust | null, { trustDomain }: TrustBundle, options: AcceptOptions): Refusal | null {
  const expected = options.trustDomain ?? held?.trustDomain ?? trustDomain;
  return trustDomain === expected ? null : refuse('wrong-trust-domain', `trust domain ${trustDomain}, not ${expected}`);
}

function refuseVersion({ version }: TrustBundle): Refusal | null {
  const countable = version >= 1n && version <= BigInt(Number.MAX_SAFE_INTEGER);
  return countable ? null : refuse('bad-version', `version ${version}`);
}

function ignoreOlder(held: HeldTrust | null, { version }: TrustBundle): TrustAcceptance | null {
  if (held === null || Number(version) > held.version) return null;
  return { kind: 'ignore', reason: Number(version) === held.version ? 'same-version' : 'older-version' };
}

function refuseEmpty(held: HeldTrust | null, { commandRoots, version }: TrustBundle): Refusal | null {
  if (commandRoots.length > 0 || held?.signaturesRequired !== true) return null;
  return refuse('no-roots', `version ${version} holds no command root; this node holds ${held.roots.length}`);
}

function refuseMalformed({ commandRoots }: TrustBundle): Refusal | null {
  for (const [index, der] of commandRoots.entries()) {
    const problem = problemOfRoot(der);
    if (problem !== null) return refuse('malformed-root', `command root ${index + 1} of ${commandRoots.length} ${problem}`);
  }
  return null;
}

function problemOfRoot(der: Uint8Array): string | null {
  try {
    return parseCertificate(der).isCa ? null : 'is not an authority';
  } catch {
    return 'does not parse';
  }
}

function refuseRemovals(held: HeldTrust | null, offered: TrustBundle, options: AcceptOptions): Refusal | null {
  const offeredIds = new Set(offered.commandRoots.map(certificateId));
  for (const id of (held?.roots ?? []).map(certificateId)) {
    const refusal = offeredIds.has(id) ? null : judgeRemoval(id, findRemoval(offered, id), options.minOverlapMs);
    if (refusal !== null) return refusal;
  }
  return null;
}

const findRemoval = (offered: TrustBundle, id: string): RemovedRoot | undefined =>
  offered.removedRoots.find((entry) => Buffer.from(entry.sha256).toString('hex') === id);

function judgeRemoval(id: string, entry: RemovedRoot | undefined, minOverlapMs: number): Refusal | null {
  if (entry === undefined) return refuse('root-removed-unexplained', `root ${id} is gone and the bundle does not say why`);
  if (entry.switchedAtMs === 0n || entry.forcedReason !== '') return null;
  const overlapMs = entry.removedAtMs - entry.switchedAtMs;
  if (overlapMs >= BigInt(minOverlapMs)) return null;
  return refuse(
    'root-removed-too-early',
    `root ${id} was removed ${overlapMs / 1000n} s after it last signed, less than ${minOverlapMs / 1000} s`,
  );
}

function take(held: HeldTrust | null, offered: TrustBundle, options: AcceptOptions): TrustAcceptance {
  const { set, quorumRefused } = takeSet(held, offered, options);
  return {
    kind: 'take',
    held: Object.freeze({
      version: Number(offered.version),
      trustDomain: offered.trustDomain,
      roots: offered.commandRoots,
      signaturesRequired: held?.signaturesRequired === true || offered.commandRoots.length > 0,
      takenAt: options.now,
      ...set,
      bundle: offered,
    }),
    quorumRefused,
  };
}

type HeldApprovers = Pick<HeldTrust, 'quorum' | 'approverSetEpoch'>;

const none: HeldApprovers = Object.freeze({ quorum: noQuorum, approverSetEpoch: 0 });

function takeSet(
  held: HeldApprovers | null,
  offered: TrustBundle,
  { trustDomain, approverSetPin }: AcceptOptions,
): { readonly set: HeldApprovers; readonly quorumRefused: QuorumRefusal | null } {
  const { quorum, approverSetEpoch } = held ?? none;
  const decision = decideApproverSet({ quorum: quorum.approverKeys.length === 0 ? null : quorum, epoch: approverSetEpoch }, offered, {
    // The first of the checks has proven it to be the node's own.
    trustDomain: trustDomain ?? offered.trustDomain,
    ...(approverSetPin === undefined ? {} : { pin: approverSetPin }),
  });
  return { set: setAfter({ quorum, approverSetEpoch }, decision), quorumRefused: refusalOf(decision) };
}

function setAfter(before: HeldApprovers, decision: SetDecision): HeldApprovers {
  switch (decision.kind) {
    case 'keep':
      return before;
    case 'take':
      return { quorum: decision.quorum, approverSetEpoch: decision.epoch };
    case 'refuse':
      return decision.walked === null ? before : { quorum: decision.walked.quorum ?? noQuorum, approverSetEpoch: decision.walked.epoch };
  }
}

const refusalOf = (decision: SetDecision): QuorumRefusal | null =>
  decision.kind === 'refuse' ? { reason: decision.reason, detail: decision.detail } : null;
