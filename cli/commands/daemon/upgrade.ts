import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { actorOption, type CommonOptions, commonOptions, reasonOption, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { commandsRunRun } from '../commands/run.ts';
import { readReleaseFile } from './release-file.ts';

export interface DaemonUpgradeOptions extends CommonOptions {
  /** Empty: every active node. */
  readonly nodes: readonly string[];
  readonly all: boolean;
  readonly release: string;
  readonly url: string;
  readonly reason: string;
  readonly actor: string;
  readonly wait: boolean;
}

export function newDaemonUpgrade(ports: Ports, run: (options: DaemonUpgradeOptions) => Promise<void>): Command {
  const command = new Command('upgrade')
    .description('Have machines replace their daemon by a signed release; one that gets no session is taken back by itself')
    .addArgument(new Argument('[nodes...]', 'node ids'))
    .addOption(new Option('--all', 'on every active node').default(false))
    .requiredOption('--release <file>', 'the signed release, of daemon sign-release')
    .addOption(new Option('--url <url>', 'where machines fetch the program').makeOptionMandatory().argParser(fetchable))
    .addOption(reasonOption())
    .addOption(actorOption(ports.io))
    .option('--no-wait', 'do not wait for the end')
    .action((nodes: string[], flags: Omit<DaemonUpgradeOptions, 'json' | 'nodes'>) => run({ ...commonOptions(command), nodes, ...flags }));
  return withExamples(command, [
    'better-compute daemon upgrade node-17 --release bcd-0.2.0.json --url https://downloads.example.com/0.2.0/bcd --reason "first of all"',
    'better-compute daemon upgrade --all --release bcd-0.2.0.json --url https://downloads.example.com/0.2.0/bcd --reason "0.2.0"',
  ]);
}

function fetchable(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : null;
  if ((url?.protocol === 'https:' || url?.protocol === 'http:') && url.username === '' && url.password === '') return value;
  throw new InvalidArgumentError('It must be an http or https URL without a user name.');
}

export async function daemonUpgradeRun({ release: path, url, ...options }: DaemonUpgradeOptions, ports: Ports): Promise<void> {
  const { release, kid, payload } = readReleaseFile(path);
  ports.io.err(`bcd ${release.version} for ${release.platform}, signed by ${kid.slice(0, 12)}`);
  await commandsRunRun({ ...options, kind: 'daemon.upgrade', payload: { ...payload, url }, deadlineMs: null, key: null, yes: true }, ports);
}
