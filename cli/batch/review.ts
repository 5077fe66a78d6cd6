/**
 * The review before a key is used. It is enforced, not only shown (BATCLI-013): every rule here stands between an approver and the
 * signature, whether or not the screen is read.
 *
 * Threat model: the api, its database and everything between may lie together. What they say is checked against itself (the listed leaves
 * must give the root that is asked for), against this program's own tables (a payload is what its bytes decode to) and against what the
 * approver knows (--expect, --root, --trust-domain). What is left is a true batch that the approver does not want: that is for
 * a person to see, so nothing in the summary is hidden or shortened beyond recognition.
 *
 * What it does not do: prove the reason, or who asked. Those are words, and shown as such.
 */

import { ControlError } from '../../domain/errors.ts';
import { hour, showInstant } from '../../domain/time.ts';
import { type ApprovalFacts, rootOfScope } from '../../pki/quorum/index.ts';
import { scopeMismatch } from './collect.ts';
import type { BatchAnswer, BatchDocument, LeafAnswer } from './document.ts';
import { differenceTo, type Expected } from './expectation.ts';
import { type Operation, operationsOf, textsIn } from './operations.ts';
import { lookAlikes, shown, suspicions } from './printable.ts';

export interface ReviewOptions {
  /** The root that was reviewed before; null: any. */
  readonly root: string | null;
  readonly expected: readonly Expected[] | null;
  readonly allowUnbound: boolean;
  readonly allowOpaque: boolean;
  readonly maxHours: number;
  /** The deployment that the approver means; null: the one that the batch names. */
  readonly trustDomain: string | null;
  /** This machine's clock. */
  readonly now: number;
}

export interface Review {
  readonly batch: BatchAnswer;
  readonly leaves: readonly LeafAnswer[];
  readonly operations: readonly Operation[];
  /** What may deceive the eye. */
  readonly warnings: readonly string[];
  /** Why it must not be signed as it is asked for; empty: it may. */
  readonly refusals: readonly ControlError[];
  readonly facts: ApprovalFacts;
}

export const defaultMaxHours = 72;
export const mostMaxHours = 720;

/**
 * What can be known before the scope is read.
 *
 * @throws INVALID_STATE (`not-pending`, `window-closed`, `window-too-long`, `other-trust-domain`), SCOPE_CHANGED
 */
export function assertReviewable(batch: BatchAnswer, options: ReviewOptions): void {
  assertPending(batch); //             1. it still waits for approvals
  assertWindow(batch, options); //     2. for a time that the approver can answer for
  assertTrustDomain(batch, options); // 3. in the deployment that is meant
  assertRoot(batch, options); //       4. and is the one that was reviewed
}

/**
 * The whole review. What it throws leaves nothing to show; what it lists as a refusal is shown first.
 *
 * @throws what assertReviewable throws; SCOPE_MISMATCH, INVALID_RESPONSE; INVALID_STATE (`payload-unknown-fields`)
 */
export function reviewBatch({ batch, leaves }: BatchDocument, options: ReviewOptions): Review {
  assertReviewable(batch, options);
  const root = proveScope(batch, leaves); //      5. the leaves that are listed are the ones that are signed
  const operations = operationsOf(leaves); //      6. and each can be read
  return {
    batch,
    leaves,
    operations,
    warnings: warningsOf(batch, operations),
    refusals: [
      refuseUnexpected(leaves, options), //        7. nothing but what was expected
      refuseUnbound(operations, options), //       8. nothing that admits more than is shown
      refuseOpaque(operations, options), //        9. nothing that cannot be shown
    ].flatMap((refusal) => refusal ?? []),
    facts: { batchId: batch.id, root, size: batch.size, notAfterMs: batch.notAfterMs, trustDomain: batch.trustDomain },
  };
}

/** @throws the first refusal */
export function assertSignable({ refusals: [first] }: Review): void {
  if (first !== undefined) throw first;
}

const state = (reason: string, message: string, hint?: string): ControlError<'INVALID_STATE'> =>
  new ControlError('INVALID_STATE', message, { details: { reason, ...(hint === undefined ? {} : { hint }) } });

function assertPending({ id, state: found }: BatchAnswer): void {
  if (found !== 'pending') throw state('not-pending', `batch ${id} is ${found}, not pending: there is nothing to approve`);
}

function assertWindow({ id, notAfterMs }: BatchAnswer, { now, maxHours }: ReviewOptions): void {
  if (notAfterMs < now)
    throw state('window-closed', `the window of batch ${id} closed at ${showInstant(notAfterMs)}`, 'ask for a new batch');
  if (notAfterMs - now <= maxHours * hour) return;
  const hours = Math.ceil((notAfterMs - now) / hour);
  throw state(
    'window-too-long',
    `the window of batch ${id} stays open for ${hours} h, until ${showInstant(notAfterMs)}: an approval admits its commands for all of it, at most ${maxHours} h are allowed`,
    `ask for a shorter one, or allow up to ${mostMaxHours} h with --max-hours`,
  );
}

function assertTrustDomain({ trustDomain }: BatchAnswer, { trustDomain: meant }: ReviewOptions): void {
  if (meant !== null && trustDomain !== meant)
    throw state('other-trust-domain', `the batch asks for an approval in trust domain ${shown(trustDomain)}, not in ${meant}`);
}

function assertRoot({ id, root }: BatchAnswer, { root: reviewed }: ReviewOptions): void {
  if (reviewed === null || reviewed === root) return;
  throw new ControlError('SCOPE_CHANGED', `batch ${id} has the root ${root}, not ${reviewed} that was reviewed`, {
    details: { reason: 'scope-changed' },
  });
}

/**
 * The listed leaves are the ones that are signed.
 *
 * @returns their root, as it was computed here
 * @throws SCOPE_MISMATCH; INVALID_RESPONSE (`bad-leaf`) for a leaf that no scope holds
 */
export function proveScope({ id, root, size }: BatchAnswer, leaves: readonly LeafAnswer[]): Buffer {
  if (leaves.length > size) throw scopeMismatch(`${leaves.length} leaves are listed, approvers are asked to sign ${size}`);
  if (leaves.length === 0) throw scopeMismatch(`no leaf is listed, approvers are asked to sign ${size}`);
  const listed = recompute(id, leaves);
  if (listed.size !== size) throw scopeMismatch(`${listed.size} distinct leaves are listed, approvers are asked to sign ${size}`);
  if (listed.root.toString('hex') !== root)
    throw scopeMismatch(`the listed leaves have the root ${listed.root.toString('hex')}, approvers are asked to sign ${root}`);
  return listed.root;
}

function recompute(batchId: string, leaves: readonly LeafAnswer[]): ReturnType<typeof rootOfScope> {
  function* bare() {
    for (const { subject, kind, payloadSha256 } of leaves) yield { subject, kind, payloadSha256: Buffer.from(payloadSha256, 'hex') };
  }
  try {
    return rootOfScope(batchId, bare());
  } catch (cause) {
    // Nothing of ours makes such a leaf: it is made to deceive the eye.
    throw new ControlError('INVALID_RESPONSE', `a leaf is listed that no scope can hold: ${(cause as Error).message}`, {
      details: { reason: 'bad-leaf' },
      cause,
    });
  }
}

const refuseUnexpected = (leaves: readonly LeafAnswer[], { expected }: ReviewOptions): ControlError | null =>
  expected === null ? null : differenceTo(expected, leaves);

const named = 12;
const namesOf = (subjects: readonly string[]): string =>
  subjects
    .slice(0, named)
    .map((one) => shown(one))
    .join(', ') + (subjects.length > named ? ` and ${subjects.length - named} more` : '');

function refuseUnbound(operations: readonly Operation[], { allowUnbound }: ReviewOptions): ControlError | null {
  const unbound = operations.filter(({ form }) => form === 'any-payload');
  if (allowUnbound || unbound.length === 0) return null;
  const which = unbound.map(({ kind, subjects }) => `${shown(kind)} on ${namesOf(subjects)}`).join('; ');
  return new ControlError('UNBOUND_SCOPE', `any payload would be admitted for ${which}`, { details: { reason: 'unbound-scope' } });
}

function refuseOpaque(operations: readonly Operation[], { allowOpaque }: ReviewOptions): ControlError | null {
  const [opaque] = operations.filter(({ form }) => form === 'opaque');
  if (allowOpaque || opaque === undefined) return null;
  return state(
    'payload-opaque',
    `${shown(opaque.kind)} ${opaque.payloadSha256.slice(0, 12)} on ${namesOf(opaque.subjects)} cannot be shown: ${opaque.why}`,
    'compare the digest with one you know, then allow it with --allow-opaque',
  );
}

function warningsOf(batch: BatchAnswer, operations: readonly Operation[]): readonly string[] {
  const texts: [string, string][] = [
    ['the reason', batch.reason],
    ['who asked', `${batch.createdBy} ${batch.createdByAgent ?? ''} ${batch.proposedBy ?? ''}`],
    ...operations.flatMap(({ kind, payloadSha256, fields }) =>
      textsIn(fields).map((text): [string, string] => [`a text of ${shown(kind)} ${payloadSha256.slice(0, 12)}`, text]),
    ),
  ];
  const subjects = new Set(operations.flatMap((operation) => operation.subjects));
  return [
    ...new Set(texts.flatMap(([where, text]) => suspicions(text).map((what) => `${where} ${what}`))),
    ...lookAlikes(subjects).map(
      (group) =>
        `these differ, and hardly look it: ${group.slice(0, named).join(', ')}${group.length > named ? ` and ${group.length - named} more` : ''}`,
    ),
  ];
}
