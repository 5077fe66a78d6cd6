import { type Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../../domain/errors.ts';
import { approverSetPinForm, isApproverSetPin } from '../../pki/enroll/index.ts';
import { readIfPresent } from '../state/files.ts';

export interface CommonFlags {
  readonly dataDir: string;
}

export const defaultDataDir = '/var/lib/better-compute/bcd';

export const dataDirOption = (): Option =>
  new Option('--data-dir <folder>', 'identity, trust and journal of this node').default(defaultDataDir);

export const approverSetPinOption = (what: string): Option =>
  new Option('--approver-set-sha256 <hex>', what).argParser((value: string) => {
    if (isApproverSetPin(value)) return value;
    throw new InvalidArgumentError(`It must be ${approverSetPinForm}.`);
  });

export const isJson = (command: Command): boolean => command.optsWithGlobals()['json'] === true;

export const examples = (command: Command, lines: readonly string[]): Command =>
  command.addHelpText('after', `\nExamples:\n${lines.map((line) => `  $ ${line}`).join('\n')}`);

/** @throws NOT_FOUND */
export async function readPins(path: string): Promise<string> {
  const content = await readIfPresent(path, 64 * 1024);
  if (content === undefined) throw new ControlError('NOT_FOUND', `there is no file ${path}`, { details: { reason: 'pins-file' } });
  return content.toString('utf8');
}
