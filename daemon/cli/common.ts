import { type Command, InvalidArgumentError, Option } from 'commander';
import { approverSetPinForm, isApproverSetPin } from '../../pki/enroll/index.ts';

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
