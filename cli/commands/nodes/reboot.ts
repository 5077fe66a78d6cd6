/** `nodes reboot`: machines in waves, always as a batch, which waits for its approvers where there are any. */
import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import {
  actorOption,
  assertConfirmed,
  commonOptions,
  duration,
  reasonOption,
  type SignedOptions,
  withExamples,
  yesOption,
} from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

/** Machines of one wave: so many, or a share of all. */
export type WaveSize = { readonly size: number } | { readonly percent: number };
export interface PerLabel {
  readonly label: string;
  readonly count: number;
}

interface Flags {
  readonly all: boolean;
  readonly reason: string;
  readonly actor: string;
  readonly yes: boolean;
  readonly wave: WaveSize;
  readonly maxFailures: number;
  readonly perLabel?: PerLabel;
  readonly pause?: number;
  readonly healthGate: boolean;
  readonly delay?: number;
  readonly for?: number;
  readonly key?: string;
}

export interface NodesRebootOptions extends SignedOptions, Flags {
  readonly nodes: readonly string[];
}

export function newNodesReboot(ports: Ports, run: (options: NodesRebootOptions) => Promise<void>): Command {
  const command = new Command('reboot')
    .description('Reboot machines in waves, as a batch: held until it is approved, stopped when too many fail')
    .addArgument(new Argument('[nodes...]', 'node ids'))
    .addOption(new Option('--all', 'every active node').default(false))
    .addOption(reasonOption())
    .addOption(actorOption(ports.io))
    .addOption(
      new Option('--wave <size>', 'machines at a time: a number, or a share such as 10%')
        .default({ percent: 10 }, '10%')
        .argParser(waveSize),
    )
    .addOption(new Option('--max-failures <n>', 'failures that do not stop it').default(0).argParser(count))
    .addOption(new Option('--per-label <label=n>', 'in one wave, at most n machines with one value of this label').argParser(perLabel))
    .addOption(new Option('--pause <time>', 'from the end of a wave to the next').argParser(duration))
    .option('--no-health-gate', 'begin a wave before the machines of the last one are connected again')
    .addOption(new Option('--delay <time>', 'between the acknowledgement and the reboot, in whole seconds').argParser(duration))
    .addOption(new Option('--for <time>', 'how long it may be approved and run (default: 24h)').argParser(duration))
    .option('--key <key>', 'idempotency key: the same key never runs twice')
    .addOption(yesOption())
    .action((nodes: string[], flags: Flags) => run({ ...commonOptions(command), ...flags, nodes }));
  return withExamples(command, [
    'better-compute nodes reboot node-17 node-18 --reason "kernel update, change 4711"',
    'better-compute nodes reboot --all --reason "firmware 7" --wave 5% --max-failures 2 --per-label rack=1 --pause 10m --yes',
  ]);
}

function count(value: string): number {
  if (!/^\d{1,9}$/.test(value)) throw new InvalidArgumentError('It must be a whole number.');
  return Number(value);
}

function waveSize(value: string): WaveSize {
  const [, number, share] = /^([1-9]\d{0,8})(%?)$/.exec(value) ?? [];
  if (number === undefined) throw new InvalidArgumentError('It must be a number of machines, or a share such as 10%.');
  return share === '%' ? { percent: Number(number) } : { size: Number(number) };
}

function perLabel(value: string): PerLabel {
  const [, label, most] = /^([^=]+)=([1-9]\d{0,8})$/.exec(value) ?? [];
  if (label === undefined) throw new InvalidArgumentError('It must be a label and a number, such as rack=1.');
  return { label, count: Number(most) };
}

export async function nodesRebootRun(options: NodesRebootOptions, { io, api }: Ports): Promise<void> {
  const { nodes, all } = options;
  if (all === nodes.length > 0) {
    throw new ControlError('INVALID_INPUT', all ? '--all and node ids exclude each other' : 'no node is named: give node ids, or --all', {
      details: { reason: 'no-target' },
    });
  }
  await assertConfirmed(io, options.yes, `Reboot ${all ? 'every active node' : nodes.join(', ')}?`);
  const { workflowId, runId } = await api().rebootNodes(requestOf(options));
  if (options.json) return writeJson(io, { workflowId, runId });
  io.out(`rebooting: workflow ${workflowId}`);
  io.err(
    `where approvers guard the fleet, its batch waits for them: better-compute batch list\nsee it end with: better-compute commands show ${workflowId}`,
  );
}

function requestOf(options: NodesRebootOptions): Parameters<ReturnType<Ports['api']>['rebootNodes']>[0] {
  const { nodes, all, reason, actor, wave, maxFailures, healthGate, pause = 0, delay, key } = options;
  return {
    nodes: all ? 'all' : [...nodes],
    actor,
    reason,
    waves: {
      ...wave,
      maxFailures,
      pauseMs: pause,
      healthGate,
      ...(options.perLabel === undefined ? {} : { maxPerLabel: options.perLabel }),
    },
    ...(delay === undefined ? {} : { delaySeconds: Math.floor(delay / second) }),
    ...(options.for === undefined ? {} : { windowMs: options.for }),
    ...(key === undefined ? {} : { idempotencyKey: key }),
  };
}
