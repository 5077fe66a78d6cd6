/** `nodes enrol` and `nodes reenrol`: a machine gets its identity over SSH, for the first time or again. */
import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import type { EnrolmentAnswer, OperatorClient } from '../../api-client.ts';
import { actorOption, commonOptions, reasonOption, type SignedOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

interface AccessFlags {
  readonly address?: string;
  readonly port?: number;
  readonly login?: string;
  readonly sudo?: boolean;
  readonly expectHostkey?: string;
  readonly credential?: string;
}

interface Flags extends AccessFlags {
  readonly site?: string;
  readonly role?: 'node' | 'site';
  readonly tenant?: string;
  readonly dryRun: boolean;
  readonly wait: boolean;
  readonly goOn?: boolean;
  readonly actor: string;
  readonly reason: string;
}

export interface EnrolOptions extends SignedOptions, Flags {
  readonly kind: 'enrol' | 'reenrol';
  readonly nodes: readonly string[];
}

type Run = (options: EnrolOptions) => Promise<void>;

const accessFlags = (command: Command): Command =>
  command
    .addOption(new Option('--address <host>', 'name or IP address of the machine'))
    .addOption(new Option('--port <port>', 'of its SSH server (default: 22)').argParser(port))
    .addOption(new Option('--login <name>', 'who logs in there (default: root)'))
    .addOption(new Option('--sudo', 'the login takes the place of root with sudo -n'))
    .addOption(
      new Option(
        '--expect-hostkey <key>',
        'its host key: SHA256:… as ssh-keygen -lf prints it, or the line of its .pub file; none is trusted on first use',
      ),
    )
    .addOption(new Option('--credential <reference>', 'file://<name>: a private key or a password, in the folder of the hosts worker'));

export function newEnrol(ports: Ports, run: Run): Command {
  const command = accessFlags(
    new Command('enrol')
      .description('Make a machine one of the fleet over SSH: bring bcd, have it make its key, give it its first identity')
      .addArgument(new Argument('<node>', 'the id that it gets')),
  )
    .addOption(new Option('--site <site>', 'where it is').default('default'))
    .addOption(new Option('--role <role>', 'what it is').choices(['node', 'site']).default('node'))
    .addOption(new Option('--tenant <tenant>', 'whose it is (default: the default tenant)'))
    .addOption(dryRunOption())
    .addOption(new Option('--wait', 'until it has ended').default(false))
    .addOption(reasonOption())
    .addOption(actorOption(ports.io))
    .action((node: string, flags: Flags) => run({ ...commonOptions(command), ...flags, kind: 'enrol', nodes: [node] }));
  return withExamples(command, [
    'better-compute nodes enrol web-7 --address 10.0.0.7 --expect-hostkey SHA256:… --credential file://web --site eu-1 --reason "new rack" --wait',
  ]);
}

export function newReenrol(ports: Ports, run: Run): Command {
  const command = accessFlags(
    new Command('reenrol')
      .description('Give nodes their next identity over SSH, one after another, while the one that each has serves')
      .addArgument(new Argument('<nodes...>', 'node ids')),
  )
    .addOption(new Option('--no-sudo', 'the login is root itself, where it was not the last time'))
    .addOption(dryRunOption())
    .addOption(new Option('--wait', 'until it has ended; with more than one node always').default(false))
    .addOption(new Option('--go-on', 'with the other nodes after one has failed (default: stop there)').default(false))
    .addOption(reasonOption())
    .addOption(actorOption(ports.io))
    .action((nodes: string[], flags: Flags) => run({ ...commonOptions(command), ...flags, kind: 'reenrol', nodes }));
  return withExamples(command, [
    'better-compute nodes reenrol web-7 --reason "its key was copied" --wait',
    'better-compute nodes reenrol web-1 web-2 web-3 --reason "serving CA was replaced" --go-on',
    'better-compute nodes reenrol web-7 --expect-hostkey SHA256:… --reason "new disk, new host key" --dry-run',
  ]);
}

const dryRunOption = (): Option => new Option('--dry-run', 'say what would be done; nothing is connected to').default(false);

function port(value: string): number {
  const number = /^\d{1,5}$/.test(value) ? Number(value) : 0;
  if (number >= 1 && number <= 65_535) return number;
  throw new InvalidArgumentError('It must be a port, 1 to 65535.');
}

interface Outcome {
  readonly node: string;
  readonly enrolment: EnrolmentAnswer | null;
  readonly error: string | null;
}

export async function enrolRun(options: EnrolOptions, { io, api }: Ports): Promise<void> {
  assertOneMachine(options);
  const client = api();
  if (options.dryRun) return dryRun(options, { io, client });
  const waits = options.wait || options.nodes.length > 1;
  const outcomes: Outcome[] = [];
  for (const node of options.nodes) {
    if (io.signal.aborted) throw interrupted(`node ${node} and what follows are left as they are`);
    const outcome = await one(options, node, { io, client, waits });
    outcomes.push(outcome);
    if (!options.json) show(outcome, io);
    if (isFailure(outcome) && options.goOn !== true) break;
  }
  if (options.json) writeJson(io, options.nodes.length === 1 ? outcomes[0]?.enrolment : { enrolments: outcomes });
  assertAllDone(outcomes, options);
}

function assertAllDone(outcomes: readonly Outcome[], { nodes }: EnrolOptions): void {
  const failed = outcomes.filter(isFailure);
  if (failed.length === 0) return;
  const left = nodes.length - outcomes.length;
  const rest = left === 0 ? '' : `; ${left} node(s) were left as they are`;
  throw new ControlError('INVALID_STATE', `${failed.map(({ node, error }) => `${node}: ${error}`).join('; ')}${rest}`, {
    details: { reason: 'enrolment-failed', hint: 'what these nodes were before, they are still; correct the cause and order it again' },
  });
}

/** What says which machine it is says it of one node. */
function assertOneMachine({ nodes, address, port: at, expectHostkey }: EnrolOptions): void {
  if (nodes.length === 1) return;
  const given = Object.entries({ '--address': address, '--port': at, '--expect-hostkey': expectHostkey });
  const flags = given.filter(([, value]) => value !== undefined).map(([flag]) => flag);
  if (flags.length === 0) return;
  throw new ControlError('INVALID_INPUT', `${flags.join(' and ')} would be that of ${nodes.length} nodes: each is a machine of its own`, {
    details: { reason: 'one-machine', hint: 'order those nodes one by one; what is not said is as it was the last time' },
  });
}

const interrupted = (what: string): ControlError =>
  new ControlError('CANCELLED', `stopped waiting; ${what}`, {
    details: { reason: 'interrupted', hint: 'better-compute enrolments list --open' },
  });

const isFailure = ({ error }: Outcome): boolean => error !== null;

async function one(
  options: EnrolOptions,
  node: string,
  { io, client, waits }: Pick<Ports, 'io'> & { readonly client: OperatorClient; readonly waits: boolean },
): Promise<Outcome> {
  // A fleet run tells of each node; a single order fails as what it is.
  const single = options.nodes.length === 1;
  try {
    const { enrolment } = await client.orderEnrolment(orderOf(options, node));
    if (enrolment === null) throw new ControlError('INVALID_RESPONSE', 'the api answered an order without an enrolment');
    if (!options.json)
      io.err(`${options.kind === 'enrol' ? 'enrolling' : 'enrolling again'} ${node}: workflow ${enrolment.workflowId} (${enrolment.id})`);
    const ended = waits ? await untilOver(enrolment, { io, client }) : enrolment;
    const failed = ended.state === 'failed' || ended.state === 'cancelled';
    return { node, enrolment: ended, error: failed ? `${ended.state}: ${ended.endReason}` : null };
  } catch (error) {
    if (single || io.signal.aborted || !isControlError(error)) throw error;
    return { node, enrolment: null, error: error.message };
  }
}

const lookEveryMs = 2 * second;

async function untilOver(
  enrolment: EnrolmentAnswer,
  { io, client }: Pick<Ports, 'io'> & { readonly client: OperatorClient },
): Promise<EnrolmentAnswer> {
  let seen = enrolment;
  while (seen.state === 'open' || seen.state === 'minted') {
    if (io.signal.aborted) throw interrupted(`enrolment ${seen.id} itself goes on`);
    await io.sleep(lookEveryMs);
    seen = await client.getEnrolment(seen.id);
  }
  return seen;
}

function show({ node, enrolment }: Outcome, io: Ports['io']): void {
  if (enrolment === null) return;
  if (enrolment.state === 'completed') return io.out(`${node} has its ${enrolment.kind === 'enrol' ? 'first' : 'next'} identity`);
  if (enrolment.state === 'open' || enrolment.state === 'minted')
    io.out(`${enrolment.id} of ${node} is under way: better-compute enrolments show ${enrolment.id}`);
}

async function dryRun(options: EnrolOptions, { io, client }: Pick<Ports, 'io'> & { readonly client: OperatorClient }): Promise<void> {
  const drafts = [];
  for (const node of options.nodes) drafts.push((await client.orderEnrolment({ ...orderOf(options, node), dryRun: true })).draft);
  if (options.json) return writeJson(io, { drafts });
  for (const draft of drafts) {
    if (draft === null) continue;
    const { nodeId, login, address, port: at, hostKey, credential, baseGeneration } = draft;
    io.out(`${nodeId}: ${login}@${address}:${at}, host key ${hostKey}, credential ${credential}; generation ${(baseGeneration ?? 0) + 1}`);
  }
  io.err('nothing was connected to, and nothing ordered');
}

function orderOf(options: EnrolOptions, node: string): Parameters<OperatorClient['orderEnrolment']>[0] {
  const { kind, address, port: at, login, sudo, expectHostkey, credential, site, role, tenant, actor, reason } = options;
  return {
    kind,
    nodeId: node,
    actor,
    reason,
    ...defined({ address, port: at, login, becomeRoot: sudo, hostKey: expectHostkey, credential, siteId: site, role, tenantId: tenant }),
  };
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

const defined = <T extends object>(values: T): Defined<T> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Defined<T>;
