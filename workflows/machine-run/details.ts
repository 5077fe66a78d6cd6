/** The Markdown an operator reads under "current details": who is waited for, what was said last, and what to type. */
import { showInstant } from '../../domain/time.ts';
import type { RunPhase, RunStatus } from '../shared/machine-messages.ts';
import { plain } from '../shared/shape.ts';

const texts: Readonly<Record<RunPhase, string>> = Object.freeze({
  planning: 'claiming the machine and making the plan',
  'waiting-approvals': 'held: nothing is sent before the approvers have signed',
  'reading-bmc': 'reading the management controller',
  'changing-credentials': 'changing the password of the management controller',
  revoking: 'ending the identity of the machine',
  booting: 'letting the machine boot from the network',
  'waiting-ramdisk': 'waiting for the ramdisk to join',
  diagnosing: 'reading what the machine is',
  wiping: 'erasing the disks',
  deploying: 'writing the image',
  'starting-system': 'starting the system that was written',
  'waiting-node': 'waiting for the system to join',
  'running-steps': 'doing what the profile says beside what every run does',
  'powering-off': 'turning the machine off',
  held: 'a step has failed; whoever has looked may say that it is done',
  'going-back': 'taking back what can be taken back',
  finishing: 'writing down how it ended',
  done: 'ended',
});

export function describeRun(status: RunStatus): string {
  const { phase, machineId, step, bmc } = status;
  return [
    `**${status.end ?? phase}**: ${texts[phase]}`,
    `- machine: ${machineId}${bmc === null ? '' : `, controller ${plain(bmc, 80)}`}, run ${status.runId ?? 'not planned yet'}`,
    `- asked for by ${plain(status.startedBy, 128)}: ${plain(status.reason)}`,
    ...(step === '' ? [] : [`- step: ${step}, attempt ${status.attempt}, since ${showInstant(status.since)}`]),
    ...(status.waitsFor === ''
      ? []
      : [`- waiting for: ${plain(status.waitsFor)}${status.deadline === null ? '' : `, until ${showInstant(status.deadline)}`}`]),
    ...describeLast(status),
    ...describeEnd(status),
    `- next: \`${status.next}\``,
  ].join('\n');
}

const describeLast = ({ last }: RunStatus): string[] =>
  last === null
    ? []
    : [`- last answer: ${plain(last.state, 20)}${last.message === '' ? '' : `: ${plain(last.message)}`} (\`${last.commandId}\`)`];

const left = Object.freeze({
  untouched: 'nothing that destroys was started',
  clean: 'it was erased, with evidence',
  dirty: 'it is in quarantine',
});

function describeEnd({ end, remains, failure }: RunStatus): string[] {
  if (end === null || end === 'done') return [];
  return [
    ...(failure === '' ? [] : [`- because: ${plain(failure, 80)}`]),
    ...(remains === null ? [] : [`- what is left: **${remains}**, ${left[remains]}`]),
  ];
}
