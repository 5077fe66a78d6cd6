/** The Markdown an approver or an operator reads under "current details", with the exact command that approves. */
import { showInstant } from '../../domain/time.ts';
import { plain } from '../shared/shape.ts';
import type { BatchStatus, Phase } from './messages.ts';

const texts: Readonly<Record<Phase, string>> = Object.freeze({
  planning: 'reading the batch',
  'waiting-approvals': 'held: nothing is signed, nothing is sent',
  releasing: 'releasing wave by wave',
  watching: 'everything is released; waiting for the ends',
  cancelling: 'ending the batch and cancelling what is held',
  recording: 'recording the evidence',
  done: 'ended',
});

export function describeBatch(status: BatchStatus): string {
  const { phase, since, batchId, outcome, state } = status;
  return [
    `**${outcome ?? phase}** since ${showInstant(since)}: ${texts[phase]}`,
    ...describeWhat(status),
    ...describeApprovals(status),
    ...describeProgress(status),
    ...(phase === 'waiting-approvals' && state !== null ? howToApprove(status) : []),
    `- look at it: \`better-compute batch show ${batchId}\``,
  ].join('\n');
}

function describeWhat({ state, size, reason, root, proposedBy }: BatchStatus): string[] {
  if (state === null) return [];
  return [
    `- what: ${size} operation(s), because: ${plain(reason, 500)}`,
    ...(proposedBy === '' ? [] : [`- **proposed by an agent** (${plain(proposedBy, 200)}): the reason is the agent's own text`]),
    `- root: \`${root}\``,
  ];
}

function describeApprovals({ state, required, approvals, notAfter }: BatchStatus): string[] {
  if (state === null) return [];
  if (required === 0) return ['- no approver set is published: recorded for the audit, released at once'];
  const missing = Math.max(0, required - approvals.length);
  return [
    `- approvals: ${approvals.length} of ${required}${missing === 0 ? '' : `, ${missing} to go`}`,
    ...approvals.map(({ kid, at }) => `  - \`${kid.slice(0, 16)}\` at ${showInstant(at)}`),
    ...(notAfter === null ? [] : [`- ends: ${showInstant(notAfter)}`]),
  ];
}

function describeProgress({ state, size, released, finished, failed, waitsFor, phase }: BatchStatus): string[] {
  if (state !== 'approved' && released === 0) return [];
  return [
    `- released: ${released} (of ${size} in the scope), ended: ${finished}, not done: ${failed}`,
    ...(waitsFor === '' || phase !== 'releasing' ? [] : [`- the next wave waits: ${plain(waitsFor, 300)}`]),
  ];
}

const howToApprove = ({ batchId, root }: BatchStatus): string[] => [
  `- approve: \`better-compute batch approve ${batchId} --key <file> --root ${root}\``,
  `- or through Temporal: \`better-compute batch sign ${batchId} --key <file> --root ${root} --out a.json\`, then \`temporal workflow update execute --workflow-id batch/${batchId} --name approve --input-file a.json\``,
];
