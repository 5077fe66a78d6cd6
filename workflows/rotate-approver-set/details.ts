/** The Markdown an operator reads under "current details" of a change of the approver set. */
import { showInstant } from '../../domain/time.ts';
import { describeBehind, describeHold } from '../shared/lifecycle-details.ts';
import type { ApproverPhase, ApproverSetStatus } from './messages.ts';

const flags = '--key approvers';

/** What happens now, and what a person can do. */
const texts: Readonly<Record<ApproverPhase, readonly [now: string, help: string]>> = Object.freeze({
  planning: ['counting who signed the change', 'better-compute approvers show'],
  storing: ['writing the signed change down', 'better-compute approvers show'],
  'waiting-publication': ['waiting until the api publishes the set', 'better-compute doctor'],
  'waiting-fleet': [
    'waiting until every connected machine enforces the set',
    `better-compute rotation exclude <node> ${flags} --reason <why>, then pin that machine again`,
  ],
  aborting: ['leaving the set as it is', 'better-compute approvers show'],
  recording: ['recording the evidence', 'better-compute approvers show'],
  done: ['ended', 'better-compute rotation verify'],
});

type Shown = NonNullable<ApproverSetStatus['to']>;
const name = (set: Shown | null): string =>
  set === null
    ? '?'
    : set.approvers === 0
      ? `no approvers (epoch ${set.epoch})`
      : `${set.threshold} of ${set.approvers} (epoch ${set.epoch}, ${set.sha256?.slice(0, 12) ?? ''})`;

export function describeApproverSet(status: ApproverSetStatus): string {
  const [now, help] = texts[status.phase];
  return [
    `**${status.phase}** since ${showInstant(status.since)}: ${now}`,
    ...describeHold(status, flags),
    ...describeBehind(status),
    `- approvers: ${name(status.from)} → ${name(status.to)}`,
    ...(status.trustVersion === null ? [] : [`- trust version: ${status.trustVersion}`]),
    `- helps: \`${help}\``,
    ...(status.overrides.length === 0 ? [] : [`- overrides: ${status.overrides.length}`]),
    `- rotation: ${status.rotationId}`,
  ].join('\n');
}
