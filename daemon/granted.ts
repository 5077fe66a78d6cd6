/**
 * What a join was answered with, as the identity of this machine: checked against itself and against what the machine was to believe, and then put in
 * the place of the identity before.
 */
import type { KeyObject } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../domain/errors.ts';
import type { JoinBundle } from '../pki/enroll/index.ts';
import { acceptTrustBundle, approverSetDigest, type HeldTrust } from '../pki/trust/index.ts';
import { grantedIdentityOf, type NodeIdentity, parseCertificate, spkiOf, verifyChain } from '../pki/x509/index.ts';
import type { JoinGranted, JoinResponseBody, TrustBundle } from '../proto/index.ts';
import { gatewayOf } from './join-call.ts';
import { type CrashHook, neverCrash } from './state/crash-points.ts';
import { type Identity, identityRoles, type StoredIdentity, saveIdentity } from './state/identity.ts';
import type { TpmPlace } from './tpm/machine-tpm.ts';
import { heldTrustOf } from './trust/offered-trust.ts';

export interface TakeOptions {
  readonly dataDir: string;
  readonly bundle: JoinBundle;
  /** The node that this machine takes itself for (JOIN-016); another one is not taken. */
  readonly nodeId?: string;
  /** Where the TPM is that answers; kept with the identity, for its renewals. Default: none. */
  readonly tpm?: TpmPlace | null;
  /**
   * The approver set that this machine enforces in this deployment stays, but for what its own approvers changed. Absent: the set is taken as at a
   * first join, which a person at the machine asked for.
   */
  readonly keepsApprovers?: boolean;
  /** Talk for a person. */
  readonly say: (text: string) => void;
  readonly crash?: CrashHook;
}

export type Granted = JoinResponseBody & { readonly outcome: { readonly case: 'granted'; readonly value: JoinGranted } };

interface Becoming {
  readonly key: KeyObject;
  readonly former: Identity | undefined;
}

/** Our key, the named node, a chain that holds, trust of this deployment. @throws PERMISSION_DENIED (join-unfit) */
export function identityFrom({ outcome, serverTimeMs }: Granted, { key, former }: Becoming, options: TakeOptions): Identity {
  const { bundle, tpm = null } = options;
  const { nodeId, siteId, chain, generation, trust } = outcome.value;
  const now = Number(serverTimeMs);
  const leaf = parseCertificate(chain[0] as Uint8Array);
  if (!Buffer.from(leaf.spki).equals(spkiOf(key))) throw unfit('the certificate is for another key');
  verifyChain(chain, { anchors: chain.slice(1), purpose: 'client', now: Math.max(now, leaf.notBefore) });
  const named = grantedIdentityOf(leaf, bundle.trustDomain);
  assertNamed(named, outcome.value, options.nodeId);
  if (trust === undefined) throw unfit('the answer carries no trust bundle');
  return {
    nodeId,
    siteId,
    role: identityRoles.find((one) => one === named.role) ?? 'node',
    trustDomain: bundle.trustDomain,
    generation,
    ...gatewayOf(bundle),
    joinKey: bundle.joinKey,
    chain,
    ...trustFrom(trust, { now, former }, options),
    joinedAtMs: now,
    tpm,
  };
}

function trustFrom(
  trust: TrustBundle,
  { now, former }: { readonly now: number; readonly former: Identity | undefined },
  options: TakeOptions,
): Pick<Identity, 'trust' | 'signaturesRequired' | 'quorum' | 'approverSetPin'> {
  const { trustDomain } = options.bundle;
  const approverSetPin = pinOf(options, former);
  const pin = approverSetPin === null ? {} : { approverSetPin };
  const decision = acceptTrustBundle(keptApprovers(options, former), trust, { now, minOverlapMs: 0, trustDomain, ...pin });
  if (decision.kind !== 'take') throw unfit(`its trust bundle: ${decision.kind === 'refuse' ? decision.detail : decision.reason}`);
  const { held, quorumRefused } = decision;
  if (options.keepsApprovers === true && quorumRefused !== null) options.say(`its approver set is not taken: ${quorumRefused.detail}`);
  const { signaturesRequired, quorum, approverSetEpoch } = held;
  return { trust, signaturesRequired, quorum: { kind: 'held', fields: quorum, epoch: approverSetEpoch }, approverSetPin };
}

const keepsOf = ({ bundle, keepsApprovers = false }: TakeOptions, former: Identity | undefined): Identity | null =>
  keepsApprovers && former?.trustDomain === bundle.trustDomain ? former : null;

const pinOf = (options: TakeOptions, former: Identity | undefined): string | null =>
  options.bundle.approverSetSha256 ?? keepsOf(options, former)?.approverSetPin ?? null;

/**
 * The approvers of this machine, without the rest of its trust, for the rule that only they change their set (DMN-022): an operator's word over
 * SSH is none of theirs. null where this machine was told to take the set as it comes, or is new in this deployment.
 */
function keptApprovers(options: TakeOptions, former: Identity | undefined): HeldTrust | null {
  const kept = keepsOf(options, former);
  return kept === null ? null : { ...heldTrustOf(kept), version: 0, roots: [] };
}

/** Before anything is asked: the answer would end the identity before. @throws INVALID_STATE */
export function assertApproversKnown(options: TakeOptions, former: Identity | undefined): void {
  const kept = keepsOf(options, former);
  if (kept?.quorum.kind !== 'unreadable' || pinOf(options, former) !== null) return;
  throw new ControlError('INVALID_STATE', `the approver set of this machine does not read back, and none is pinned: ${kept.quorum.why}`, {
    details: {
      reason: 'approvers-unreadable',
      hint: `a person at the machine: bcd join --replace --data-dir ${options.dataDir} <join string>`,
    },
  });
}

function assertNamed(named: NodeIdentity, { nodeId, siteId }: JoinGranted, wanted: string | undefined): void {
  if (named.nodeId !== nodeId || named.siteId !== siteId)
    throw unfit(`the certificate is for ${named.spiffeId}, the answer for node ${nodeId} of site ${siteId}`);
  if (wanted !== undefined && wanted !== nodeId) throw unfit(`it is for node ${nodeId}, and this machine is to be ${wanted}`);
}

const unfit = (message: string): ControlError =>
  new ControlError('PERMISSION_DENIED', `the join answer does not fit: ${message}`, { details: { reason: 'join-unfit' } });

/**
 * A new identity counts its sessions anew, and its join answer is the newest signed word about the time: what an earlier one was
 * told goes, so that joining again is a way out of it. Another node's desired state means nothing to this one; its journal
 * does no harm and is kept.
 */
export async function installIdentity(
  { identity, key }: StoredIdentity,
  former: Identity | undefined,
  options: TakeOptions,
): Promise<void> {
  const { dataDir: folder, crash = neverCrash } = options;
  const before = former?.trustDomain === identity.trustDomain ? former : undefined;
  if (before !== undefined) assertNotWeaker(identity, before, options);
  if (former !== undefined && before?.nodeId !== identity.nodeId) await rm(join(folder, 'desired-state.json'), { force: true });
  await rm(join(folder, 'marks.json'), { force: true });
  await saveIdentity(folder, { identity, key }, { beforeRename: () => crash('join-uninstalled') });
}

/** Of the same deployment. */
function assertNotWeaker(identity: Identity, before: Identity, { dataDir, keepsApprovers = false }: TakeOptions): void {
  if (before.signaturesRequired && identity.trust.commandRoots.length === 0)
    throw unfit('it holds no command root, and this machine already required signatures in this deployment');
  if (!keepsApprovers && holdsSet(before) && !holdsSet(identity) && identity.approverSetPin === null) {
    throw unfit(
      `it names no approver, and this machine enforced an approver set in this deployment: give the set by --approver-set-sha256, or, when the approvers took it away, remove ${dataDir} first`,
    );
  }
}

const holdsSet = ({ quorum }: Identity): boolean => quorum.kind === 'unreadable' || quorum.fields.approverKeys.length > 0;

/** Whose word this machine will ask for: the one moment at which a set is taken as it comes. */
export function sayApprovers(identity: Identity, former: Identity | undefined, { say }: TakeOptions): void {
  const { quorum, approverSetPin, trust } = identity;
  if (quorum.kind === 'unreadable') return;
  const digest = approverSetDigest(quorum.fields);
  if (holdsSet(identity)) {
    const pinned = approverSetPin === null ? 'not pinned: compare it with pki trust-version' : 'as pinned';
    say(`approver set ${digest} of epoch ${quorum.epoch} taken, ${pinned}`);
    if (former?.quorum.kind === 'held' && holdsSet(former) && approverSetDigest(former.quorum.fields) !== digest)
      say(`this machine enforced the approver set ${approverSetDigest(former.quorum.fields)} before`);
  } else if (approverSetPin !== null) {
    const offered = trust.approverKeys.length === 0 ? 'none is published' : 'another one is published';
    say(`destructive commands are refused until the approver set ${approverSetPin} comes: ${offered}`);
  }
}
