/** Commands that change a running rotation. Each names who and why; Temporal keeps both, and the audit trail repeats them. */
import { Argument, Command, Option } from 'commander';
import type { Gate } from '../../../workflows/rotate-command-root/messages.ts';
import { type ApprovalInFile, approvalsOption } from '../../approvals-file.ts';
import { actorOption, assertConfirmed, commonOptions, reasonOption, type SignedOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import type { AnyRotationPort } from '../../rotation-port.ts';
import { type RotationTarget, type TargetFlags, targetOf, withTarget } from '../../rotation-target.ts';
import { watchLine } from '../../rotation-view.ts';

/** Spelled out, because the workflow's own list comes with the whole Temporal SDK; a test holds the two together. */
export const forceableGates = Object.freeze(['processes', 'fleet', 'signers', 'confirm'] as const satisfies readonly Gate[]);

/** The command root without a target. */
interface Targeted {
  readonly target?: RotationTarget;
}

export interface OverrideOptions extends SignedOptions, Targeted {
  readonly yes: boolean;
  /** H-08: needed once an approver set is published. */
  readonly approvals?: readonly ApprovalInFile[];
}

type ResumeOptions = Omit<SignedOptions, 'reason'> & Targeted;

export interface ForceOptions extends OverrideOptions {
  readonly phase: Gate;
}

export interface ExcludeOptions extends OverrideOptions {
  readonly node: string;
}

export function newRotationForce(ports: Ports, run: (options: ForceOptions) => Promise<void>): Command {
  const command = signed(ports, withTarget(new Command('force')), 'Open a gate of the running rotation although it is closed')
    .addOption(yesOption())
    .addOption(approvalsOption())
    .addOption(new Option('--phase <gate>', 'the gate to open').choices(forceableGates).makeOptionMandatory())
    .action((flags: Flags<ForceOptions>) => run({ ...commonOptions(command), ...targeted(flags) }));
  return withExamples(command, [
    'better-compute rotation force --phase fleet --reason "rack 7 is being scrapped" --yes',
    'better-compute rotation force --phase fleet --reason "rack 7 is being scrapped" --approvals ann.json,bob.json --yes',
  ]);
}

export function newRotationExclude(ports: Ports, run: (options: ExcludeOptions) => Promise<void>): Command {
  const command = signed(
    ports,
    withTarget(new Command('exclude')),
    'Leave a node out of the gates; it must join again if it comes back after the drop',
  )
    .addOption(yesOption())
    .addOption(approvalsOption())
    .addArgument(new Argument('<node>', 'node id'))
    .action((node: string, flags: Omit<Flags<ExcludeOptions>, 'node'>) => run({ ...commonOptions(command), ...targeted(flags), node }));
  return withExamples(command, ['better-compute rotation exclude node-17 --reason "mainboard on order" --yes']);
}

export function newRotationAbort(ports: Ports, run: (options: OverrideOptions) => Promise<void>): Command {
  const command = signed(
    ports,
    withTarget(new Command('abort')),
    'Take the running rotation back; possible until the point of no return of its key',
  )
    .addOption(yesOption())
    .addOption(approvalsOption())
    .action((flags: Flags<OverrideOptions>) => run({ ...commonOptions(command), ...targeted(flags) }));
  return withExamples(command, ['better-compute rotation abort --reason "wrong maintenance window" --yes']);
}

export function newRotationPause(ports: Ports, run: (options: SignedOptions & Targeted) => Promise<void>): Command {
  const command = signed(
    ports,
    withTarget(new Command('pause')),
    'Hold the running rotation before its next step; the overlap runs on',
  ).action((flags: Flags<SignedOptions & Targeted>) => run({ ...commonOptions(command), ...targeted(flags) }));
  return withExamples(command, ['better-compute rotation pause --reason "network change until 14:00"']);
}

export function newRotationResume(ports: Ports, run: (options: ResumeOptions) => Promise<void>): Command {
  const command = withTarget(new Command('resume'))
    .description('Let a paused or held rotation go on')
    .addOption(actorOption(ports.io))
    .action((flags: Flags<ResumeOptions>) => run({ ...commonOptions(command), ...targeted(flags) }));
  return withExamples(command, ['better-compute rotation resume']);
}

type Flags<Options> = Omit<Options, 'json' | 'target'> & TargetFlags;

/** What commander read, with the rotation it means in place of the two flags. */
function targeted<F extends TargetFlags>({ key, ca, ...rest }: F): Omit<F, 'key' | 'ca'> & { target: RotationTarget } {
  return { ...rest, target: targetOf(ca === undefined ? { key } : { key, ca }) };
}

const signed = (ports: Ports, command: Command, description: string): Command =>
  command.description(description).addOption(actorOption(ports.io)).addOption(reasonOption());

/** Without the field where there are none: a worker of an earlier release refuses what it does not know. */
const approved = ({ approvals }: Pick<OverrideOptions, 'approvals'>): Pick<OverrideOptions, 'approvals'> =>
  approvals === undefined ? {} : { approvals };

export const rotationForceRun = ({ phase, actor, reason, ...options }: ForceOptions, ports: Ports): Promise<void> =>
  change(options, ports, {
    question: `Force the gate "${phase}" open? Nodes and processes behind it may reject commands.`,
    act: (r) => r.force({ phase, actor, reason, ...approved(options) }),
  });

export const rotationExcludeRun = ({ node, actor, reason, ...options }: ExcludeOptions, ports: Ports): Promise<void> =>
  change(options, ports, {
    question: `Leave ${node} out of the rotation? It must join again if it comes back after the drop.`,
    act: (r) => r.exclude({ node, actor, reason, ...approved(options) }),
  });

export const rotationAbortRun = ({ actor, reason, ...options }: OverrideOptions, ports: Ports): Promise<void> =>
  change(options, ports, { question: 'Take the rotation back?', act: (r) => r.abort({ actor, reason, ...approved(options) }) });

export const rotationPauseRun = ({ actor, reason, ...options }: SignedOptions & Targeted, ports: Ports): Promise<void> =>
  change({ ...options, yes: true }, ports, { question: '', act: (r) => r.pause({ actor, reason }) });

export const rotationResumeRun = ({ actor, ...options }: ResumeOptions, ports: Ports): Promise<void> =>
  change({ ...options, yes: true }, ports, { question: '', act: (r) => r.resume({ actor }) });

async function change(
  options: Targeted & { json: boolean; yes: boolean },
  ports: Ports,
  step: { question: string; act: (rotation: AnyRotationPort) => Promise<unknown> },
): Promise<void> {
  await assertConfirmed(ports.io, options.yes, step.question);
  const rotation = await ports.rotation(options.target);
  try {
    await step.act(rotation);
    const found = await rotation.find();
    if (options.json) writeJson(ports.io, found);
    else ports.io.out(watchLine(found));
  } finally {
    await rotation.close();
  }
}
