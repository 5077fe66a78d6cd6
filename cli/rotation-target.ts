/** Which rotation a command means: that of the command root, unless `--key` names another. */
import { type Command, Option } from 'commander';
import { ControlError } from '../domain/errors.ts';
import { type ExchangedKey, exchangedKeys, type RenewedCa, renewedCas } from '../domain/rotation/key-exchanges.ts';

export interface RotationTarget {
  readonly key: 'command-root' | 'approvers' | ExchangedKey;
  /** The authority of `ca`; empty for the others. */
  readonly ca: RenewedCa | '';
}

export const commandRoot: RotationTarget = Object.freeze({ key: 'command-root', ca: '' });
/** Who approves: no key of ours, but changed by the same words. */
export const approverSet: RotationTarget = Object.freeze({ key: 'approvers', ca: '' });

/** Every rotation there is, in the order in which lists show them. */
export const rotationTargets: readonly RotationTarget[] = Object.freeze([
  commandRoot,
  approverSet,
  ...exchangedKeys.flatMap((key): RotationTarget[] => (key === 'ca' ? renewedCas.map((ca) => ({ key, ca })) : [{ key, ca: '' }])),
]);

export interface TargetFlags {
  readonly key: RotationTarget['key'];
  readonly ca?: RenewedCa;
}

/** `--key` and `--ca`, for every command that works on one rotation. */
export const withTarget = (command: Command): Command =>
  command
    .addOption(new Option('--key <key>', 'whose rotation').choices(['command-root', 'approvers', ...exchangedKeys]).default('command-root'))
    .addOption(new Option('--ca <ca>', 'the authority, with --key ca').choices(renewedCas));

/** @throws INVALID_INPUT when --ca is missing, or does not belong there */
export function targetOf({ key, ca }: TargetFlags): RotationTarget {
  if (key === 'ca' && ca === undefined) throw refused(`--key ca needs --ca ${renewedCas.join('|')}`);
  if (key !== 'ca' && ca !== undefined) throw refused(`--ca belongs to --key ca, not to --key ${key}`);
  return { key, ca: ca ?? '' };
}

const refused = (message: string): ControlError => new ControlError('INVALID_INPUT', message, { details: { reason: 'bad-target' } });

/** What another command needs to mean the same rotation; empty for that of the command root. */
export const targetFlags = ({ key, ca }: RotationTarget): string =>
  key === 'command-root' ? '' : ` --key ${key}${ca === '' ? '' : ` --ca ${ca}`}`;

export const targetName = ({ key, ca }: RotationTarget): string => (ca === '' ? key : `${ca} ${key}`);
