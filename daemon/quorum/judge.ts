/**
 * May this destructive command run here? One pure function (DMN-001): bcd, the simulated fleet and the tests call the same one. It
 * says what would be used up and uses nothing: that is for admission, once everything else has been judged (DMN-030, DMN-039).
 *
 * Threat model: everything between the approvers and this machine may be hostile, the signing worker included, which can sign any
 * body it likes. What it cannot make is k signatures of approvers over a scope that holds this operation. Approval and proof
 * travel outside the worker's signature, so they may be stripped, swapped, repeated or delayed; each of that can only lead to a refusal.
 * Subject, kind, payload and batch id are read from the signed body, the trust domain and the approvers from this machine.
 *
 * The order: harmless → unreadable set → no set → outside of a batch → approval and proof → the leaf is free.
 */
import type { Harm } from '../../domain/commands/harm.ts';
import { verifyQuorum } from '../../pki/quorum/index.ts';
import type { QuorumFields } from '../../pki/trust/index.ts';
import { type BatchApproval, type BatchProof, CommandRejectReason } from '../../proto/index.ts';
import { type ClaimHolder, isSameHolder, type QuorumClaim } from './claims.ts';
import type { HeldQuorum } from './held-quorum.ts';
import { maxSlots, type UnbatchedSlots } from './unbatched-slots.ts';
import type { UsedLeaves } from './used-leaves.ts';

/** What this machine holds; nothing of it comes from the command. */
export interface QuorumView {
  readonly held: HeldQuorum;
  /** PIN-007; null: no pin. */
  readonly pin: string | null;
  readonly leaves: Pick<UsedLeaves, 'find' | 'isFull' | 'unreadable'>;
  readonly slots: Pick<UnbatchedSlots, 'within' | 'at' | 'unreadable'>;
  readonly trustDomain: string;
  /** The machine's own clock. */
  readonly wallMs: number;
  /** Server time. */
  readonly now: number;
}

/** From the signed body, but for approval and proof, which come beside it. */
export interface JudgedCommand extends ClaimHolder {
  readonly kind: string;
  readonly harm: Harm;
  /** What it acts on, as this machine reads the body (QUO-027). */
  readonly subject: string;
  readonly payloadSha256: Uint8Array;
  readonly batchId: string;
  readonly approval: BatchApproval | undefined;
  readonly proof: BatchProof | undefined;
}

export type QuorumVerdict =
  /** Nothing is asked of it. */
  { readonly kind: 'free' } | { readonly kind: 'claim'; readonly claim: QuorumClaim } | QuorumRefusal;

export interface QuorumRefusal {
  readonly kind: 'refuse';
  readonly reject: CommandRejectReason.BATCH_UNAPPROVED | CommandRejectReason.UNBATCHED_LIMIT;
  /** Kebab-case, as in the log and at the head of the detail. */
  readonly reason: string;
  readonly detail: string;
}

const free: QuorumVerdict = Object.freeze({ kind: 'free' });

export function judgeQuorum(view: QuorumView, command: JudgedCommand): QuorumVerdict {
  if (command.harm === 'none') return free;
  const { held, pin } = view;
  if (held.kind === 'unreadable') return unapproved('no-bundle', `${held.why}; ${rejoin}`);
  if (held.fields.approverKeys.length === 0) {
    // A set that its own approvers took away again leaves an epoch: the pin was about the first one, which it has had.
    if (pin === null || held.epoch > 0) return free;
    return unapproved('awaiting-pinned-set', `this machine takes the approver set ${pin.slice(0, 12)}… only and has not been given it`);
  }
  return command.batchId === ''
    ? judgeUnbatched(view, command, held.fields.unbatchedDestructivePerHour)
    : judgeBatched(view, command, held.fields);
}

const rejoin = 'join again with bcd join --replace';

function judgeBatched(view: QuorumView, command: JudgedCommand, quorum: QuorumFields): QuorumVerdict {
  const { batchId, approval, proof, kind, subject, payloadSha256, harm } = command;
  const approved = verifyQuorum({
    quorum,
    batchId,
    leaf: { subject, kind, payloadSha256 },
    approval,
    proof,
    trustDomain: view.trustDomain,
    now: view.now,
    boundOnly: harm === 'bound-only',
  });
  if (!approved.ok) return unapproved(approved.reason, approved.detail);
  if (view.leaves.unreadable !== null)
    return unapproved('leaves-unreadable', `which operations of its batches ran here is not known: ${view.leaves.unreadable}`);
  const holder = view.leaves.find(approved.leafHash);
  if (holder !== undefined && !isSameHolder(holder, command)) {
    const what = holder.commandId === command.commandId ? 'an earlier body of this command' : `command ${holder.commandId}`;
    return unapproved('leaf-used', `${what} used this operation of batch ${batchId}`);
  }
  if (holder === undefined && view.leaves.isFull())
    return unapproved('leaves-full', 'this machine remembers as many operations of open batches as it can');
  return { kind: 'claim', claim: { kind: 'leaf', leaf: approved.leafHash, notAfterMs: approved.notAfterMs } };
}

function judgeUnbatched(view: QuorumView, command: JudgedCommand, allowance: number): QuorumVerdict {
  if (command.harm === 'bound-only')
    return unapproved('unbound-write', `${command.kind} runs in a batch only, under a leaf of its exact payload`);
  const { slots, wallMs } = view;
  if (slots.unreadable !== null)
    return overLimit('slots-unreadable', `how many ran outside of batches in the last hour is not known: ${slots.unreadable}`);
  const used = slots.within(wallMs);
  const claim: QuorumVerdict = { kind: 'claim', claim: { kind: 'slot', atMs: slots.at(wallMs) } };
  if (used.some((one) => isSameHolder(one, command))) return claim;
  const most = Math.min(allowance, maxSlots);
  if (used.length < most) return claim;
  return overLimit('unbatched-limit', `${used.length} of ${most} destructive commands outside of batches ran here in the last hour`);
}

const refusal = (reject: QuorumRefusal['reject'], reason: string, detail: string): QuorumRefusal => ({
  kind: 'refuse',
  reject,
  reason,
  detail: `${reason}: ${detail}`,
});

const unapproved = (reason: string, detail: string): QuorumRefusal => refusal(CommandRejectReason.BATCH_UNAPPROVED, reason, detail);
const overLimit = (reason: string, detail: string): QuorumRefusal => refusal(CommandRejectReason.UNBATCHED_LIMIT, reason, detail);
