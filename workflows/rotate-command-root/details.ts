/** The Markdown an operator reads under "current details" in the UI, or with `temporal workflow metadata`. */
import { showInstant } from '../../domain/time.ts';
import { describeBehind, describeHold } from '../shared/lifecycle-details.ts';
import type { Phase, RotationStatus } from './messages.ts';

interface PhaseText {
  readonly now: string;
  readonly next: string;
  readonly help: string;
}

const watch = 'better-compute rotation watch';

const texts: Readonly<Record<Phase, PhaseText>> = Object.freeze({
  planning: { now: 'reading the key bundle', next: 'create the new root', help: watch },
  adding: { now: 'putting the new root beside the old one', next: 'wait until every process runs that bundle', help: watch },
  'waiting-processes': {
    now: 'waiting until every process of the control plane runs the bundle with the new root, and the deployment publishes it',
    next: 'wait for the fleet',
    help: 'better-compute doctor',
  },
  'waiting-fleet': {
    now: 'waiting until every connected node holds the new root',
    next: 'switch: workers sign under the new root',
    help: 'better-compute rotation exclude <node> --reason <why>',
  },
  switching: { now: 'switching the signing root', next: 'wait until every process signs under it', help: watch },
  aborting: { now: 'taking the rotation back', next: 'wait until the deployment publishes the root that stays', help: watch },
  'waiting-signers': {
    now: 'waiting until every process signs under the root that stays',
    next: 'sign again what is still signed under the other one',
    help: 'better-compute doctor',
  },
  resigning: { now: 'signing open commands and stored specs again', next: 'wait for the earliest drop', help: watch },
  'waiting-drop': {
    now: 'waiting for the earliest drop: everything signed under the former root has to die first',
    next: 'stop trusting the former root',
    help: 'nothing needs to be done; no message shortens this wait',
  },
  dropping: {
    now: 'dropping the former root',
    next: 'confirm that the fleet has given it up',
    help: 'temporal workflow describe -w rotate-command-root',
  },
  confirming: {
    now: 'waiting until the deployment and every connected node have given up the former root',
    next: 'record the evidence',
    help: 'better-compute rotation exclude <node> --reason <why>',
  },
  recording: { now: 'recording the evidence', next: 'done', help: watch },
  done: { now: 'ended', next: 'nothing', help: 'better-compute rotation verify' },
});

export function describe(status: RotationStatus): string {
  const text = texts[status.phase];
  return [
    `**${status.phase}** since ${showInstant(status.since)}: ${text.now}`,
    ...describeHold(status),
    ...describeBehind(status),
    ...(status.dropOpensAt === null || status.outcome !== null ? [] : [`- earliest drop: ${showInstant(status.dropOpensAt)}`]),
    `- next: ${text.next}`,
    `- helps: \`${text.help}\``,
    ...(status.newRoot === null
      ? []
      : [`- roots: ${short(status.oldRoot)} → ${short(status.newRoot)}, trust version ${status.trustVersion ?? 'not published'}`]),
    ...(status.overrides.length === 0 ? [] : [`- overrides: ${status.overrides.length} (\`better-compute rotation status\` lists them)`]),
    `- rotation: ${status.rotationId}`,
  ].join('\n');
}

const short = (id: string | null): string => (id === null ? '?' : id.slice(0, 12));
