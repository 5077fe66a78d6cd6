/** The Markdown an operator reads under "current details" of an exchange in the UI, or with `temporal workflow metadata`. */
import { type ExchangedKey, exchanges } from '../../domain/rotation/key-exchanges.ts';
import { showInstant } from '../../domain/time.ts';
import { describeBehind, describeHold } from '../shared/lifecycle-details.ts';
import type { KeyPhase, KeyRotationStatus } from './messages.ts';

const names: Readonly<Record<ExchangedKey, string>> = Object.freeze({
  ca: 'CA certificate',
  gateway: 'gateway certificate',
  ticket: 'exec ticket key',
  workload: 'workload key',
});

const whoIsCounted = Object.freeze({
  'bundle-holders': 'every process runs the key bundle',
  gateways: 'every gateway presents the certificate',
  nobody: 'every process reads the keys',
});

/** What happens now, and what a person can do; `nothing` where only time helps. */
const texts: Readonly<Record<KeyPhase, readonly [now: string, help: 'watch' | 'doctor' | 'nothing']>> = Object.freeze({
  planning: ['reading where the key stands', 'watch'],
  adding: ['making the next one', 'watch'],
  'waiting-processes': ['waiting until {counted} with the next one', 'doctor'],
  'waiting-promote': ['waiting until whoever verifies has read the next one', 'nothing'],
  promoting: ['letting the next one sign', 'watch'],
  aborting: ['taking the exchange back', 'watch'],
  'waiting-signers': ['waiting until {counted} in which the next one signs', 'doctor'],
  'waiting-retire': ['waiting until nothing under the former one is valid any more', 'nothing'],
  retiring: ['taking the former one out', 'watch'],
  confirming: ['waiting until {counted} without the former one', 'doctor'],
  recording: ['recording the evidence', 'watch'],
  done: ['ended', 'nothing'],
});

export const commandFlags = ({ key, subject }: Pick<KeyRotationStatus, 'key' | 'subject'>): string =>
  `--key ${key}${subject === '' ? '' : ` --ca ${subject}`}`;

export function describeKeyRotation(status: KeyRotationStatus): string {
  const [now, help] = texts[status.phase];
  const helps = {
    watch: `\`better-compute rotation status ${commandFlags(status)}\``,
    doctor: '`better-compute doctor` says which process is behind: start it again or stop it',
    nothing: 'nothing needs to be done; no message shortens this wait',
  };
  return [
    `**${status.phase}** since ${showInstant(status.since)}: ${now.replace('{counted}', whoIsCounted[exchanges[status.key].counts])}`,
    ...describeHold(status, commandFlags(status)),
    ...describeBehind(status),
    ...(status.opensAt === null ? [] : [`- opens: ${showInstant(status.opensAt)}`]),
    `- helps: ${helps[help]}`,
    `- ${status.subject}${status.subject === '' ? '' : ' '}${names[status.key]}: ${short(status.from)} → ${short(status.to)}`,
    `- rotation: ${status.rotationId}`,
  ].join('\n');
}

const short = (id: string | null): string => (id === null ? '?' : id.slice(0, 12));
