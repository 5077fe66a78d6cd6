import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { harmOf } from '../../../domain/commands/harm.ts';
import { commandKinds } from '../../../domain/commands/kinds.ts';
import { isFinished } from '../../../domain/commands/states.ts';
import { ControlError, isControlError } from '../../../domain/errors.ts';
import type { CommandAnswer } from '../../api-client.ts';
import { actorOption, assertConfirmed, type CommonOptions, commonOptions, duration, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { commandTable } from './show.ts';

export interface CommandsRunOptions extends CommonOptions {
  readonly kind: string;
  /** Empty: every active node. */
  readonly nodes: readonly string[];
  readonly all: boolean;
  readonly payload: Readonly<Record<string, unknown>>;
  readonly deadlineMs: number | null;
  readonly reason: string | null;
  readonly actor: string;
  readonly key: string | null;
  readonly wait: boolean;
  readonly yes: boolean;
}

interface Flags {
  readonly all: boolean;
  readonly payload: Record<string, unknown>;
  readonly deadline?: number;
  readonly reason?: string;
  readonly actor: string;
  readonly key?: string;
  readonly wait: boolean;
  readonly yes: boolean;
}

export function newCommandsRun(ports: Ports, run: (options: CommandsRunOptions) => Promise<void>): Command {
  const command = new Command('run')
    .description('Run one command on one or many nodes, and wait for its end')
    .addArgument(new Argument('<kind>', 'what to run').choices(Object.keys(commandKinds)))
    .addArgument(new Argument('[nodes...]', 'node ids'))
    .addOption(new Option('--all', 'on every active node').default(false))
    .addOption(new Option('--payload <json>', 'what the kind takes, as JSON').default({}, '{}').argParser(jsonObject))
    .addOption(new Option('--deadline <time>', 'how long it may wait for its start').argParser(duration))
    .option('--reason <text>', 'why, for the audit trail')
    .addOption(actorOption(ports.io))
    .option('--key <key>', 'idempotency key: the same key never runs twice')
    .option('--no-wait', 'do not wait for the end')
    .addOption(yesOption())
    .action((kind: string, nodes: string[], flags: Flags) => run({ ...commonOptions(command), ...toOptions(kind, nodes, flags) }));
  return withExamples(command, [
    'better-compute commands run inventory.refresh node-17 node-18',
    'better-compute commands run inventory.refresh --all --no-wait --json',
    `better-compute commands run service.restart node-17 --payload '{"unit":"nginx.service"}'`,
    `better-compute commands run driver.invoke node-17 --payload '{"plugin":"psu","manifestSha256":"…","method":"read","harmless":true}'`,
    'better-compute commands run node.reboot node-17 --reason "kernel" --yes',
  ]);
}

const toOptions = (kind: string, nodes: string[], { deadline, reason, key, ...flags }: Flags): Omit<CommandsRunOptions, 'json'> => ({
  kind,
  nodes,
  ...flags,
  deadlineMs: deadline ?? null,
  reason: reason ?? null,
  key: key ?? null,
});

function jsonObject(value: string): Record<string, unknown> {
  try {
    const parsed: unknown = JSON.parse(value);
    if (parsed !== null && typeof parsed === 'object' && !Array.isArray(parsed)) return parsed as Record<string, unknown>;
  } catch {
    // Answered below: not JSON and not an object are the same mistake here.
  }
  throw new InvalidArgumentError('It must be a JSON object.');
}

export async function commandsRunRun(options: CommandsRunOptions, ports: Ports): Promise<void> {
  assertTargets(options);
  if (harmOf(options.kind, options.payload) !== 'none') {
    const where = options.all ? 'every active node' : options.nodes.join(', ');
    await assertConfirmed(ports.io, options.yes, `Run ${options.kind} on ${where}?`);
  }
  const client = ports.api();
  const started = await client.runCommands({
    kind: options.kind,
    nodes: options.all ? 'all' : [...options.nodes],
    payload: options.payload,
    actor: options.actor,
    ...(options.deadlineMs === null ? {} : { deadlineMs: options.deadlineMs }),
    ...(options.reason === null ? {} : { reason: options.reason }),
    ...(options.key === null ? {} : { idempotencyKey: options.key }),
  });
  if (!options.wait) {
    if (options.json) return writeJson(ports.io, started);
    return ports.io.out(`started: better-compute commands show ${started.workflowId}`);
  }
  await waitForEnd(options, ports, started.workflowId);
}

function assertTargets({ nodes, all }: CommandsRunOptions): void {
  if (all === nodes.length > 0) {
    throw new ControlError('INVALID_INPUT', all ? '--all and node ids exclude each other' : 'no node is named: give node ids, or --all', {
      details: { reason: 'no-target' },
    });
  }
}

const lookEveryMs = 500;
/** Commands that have not come by now are asked for at Temporal: their workflow may have been refused. */
const looksBeforeAsking = 6;

async function waitForEnd(options: CommandsRunOptions, ports: Ports, workflowId: string): Promise<void> {
  const { io } = ports;
  const commands = await untilEnded(options, ports, workflowId);
  if (options.json) writeJson(io, { workflowId, commands });
  else io.out(commandTable(commands, io.now()));
  const failed = commands.filter(({ state }) => state !== 'done');
  if (failed.length > 0) {
    throw new ControlError(
      'INVALID_STATE',
      `${failed.length} of ${commands.length} command(s) did not succeed (${failed[0]?.nodeId}: ${failed[0]?.state})`,
      {
        details: { reason: 'command-failed', workflowId, hint: `better-compute commands show ${workflowId}` },
      },
    );
  }
}

async function untilEnded(options: CommandsRunOptions, { io, api, runFailure }: Ports, workflowId: string): Promise<CommandAnswer[]> {
  const expected = options.all ? 1 : new Set(options.nodes).size;
  for (let looks = 1; ; looks++) {
    const commands = await commandsOf(api, workflowId);
    const complete = commands.length >= expected;
    if (complete && commands.every(({ state }) => isFinished(state as never))) return commands;
    const failure = complete || looks % looksBeforeAsking !== 0 ? null : await runFailure(workflowId);
    if (failure !== null) throw failure;
    if (io.signal.aborted) {
      throw new ControlError('CANCELLED', 'stopped waiting; the command itself goes on', {
        details: { reason: 'interrupted', workflowId, hint: `better-compute commands show ${workflowId}` },
      });
    }
    await io.sleep(lookEveryMs);
  }
}

/** The workflow has to enqueue before there is anything to see. */
async function commandsOf(api: Ports['api'], workflowId: string): Promise<CommandAnswer[]> {
  try {
    return await api().getCommands(workflowId);
  } catch (error) {
    if (isControlError(error) && error.code === 'NOT_FOUND') return [];
    throw error;
  }
}
