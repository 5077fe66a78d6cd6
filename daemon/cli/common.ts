import { type Command, Option } from 'commander';

export interface CommonFlags {
  readonly dataDir: string;
}

export const defaultDataDir = '/var/lib/better-compute/bcd';

export const dataDirOption = (): Option =>
  new Option('--data-dir <folder>', 'identity, trust and journal of this node').default(defaultDataDir);

export const isJson = (command: Command): boolean => command.optsWithGlobals()['json'] === true;

export const examples = (command: Command, lines: readonly string[]): Command =>
  command.addHelpText('after', `\nExamples:\n${lines.map((line) => `  $ ${line}`).join('\n')}`);
