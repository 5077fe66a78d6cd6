/** The commands that start a run on a machine: one row each; `provision` takes a profile besides. */
import { Argument, Command } from 'commander';
import { actorOption, assertConfirmed, commonOptions, reasonOption, type SignedOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import { readProfileFile } from '../../machines/profile-file.ts';
import type { Ports } from '../../ports.ts';

export interface BeginOptions extends SignedOptions {
  readonly machine: string;
  readonly yes: boolean;
  /** A file; of a provision run. */
  readonly profile?: string;
}

interface BeginRow {
  readonly description: string;
  /** Asked before; absent: nothing is destroyed. */
  question?(machine: string): string;
  readonly doing: string;
  readonly examples: readonly string[];
}

const rows = Object.freeze({
  inspect: {
    description: 'Inspect a machine: read its controller, and keep what it says of identity, disks, power and abilities',
    doing: 'inspecting',
    examples: ['better-compute machine inspect gpu-0117 --reason "new in the rack"'],
  },
  provision: {
    description: 'Provision a machine: wipe every disk, write the image of a profile, see the new system join',
    question: (machine) => `Wipe every disk of ${machine} and write it anew?`,
    doing: 'provisioning',
    examples: [
      'better-compute machine provision gpu-0117 --profile profiles/gpu-worker.yaml --reason "new tenant" --yes',
      'better-compute machine provision gpu-0117 --profile gpu-worker.yaml --reason "ticket 4711" --yes --json',
    ],
  },
  retire: {
    description: 'Retire a machine: end its identity, wipe every disk, turn it off',
    question: (machine) => `Retire ${machine}: end its identity and wipe every disk?`,
    doing: 'retiring',
    examples: ['better-compute machine retire gpu-0117 --reason "end of lease" --yes'],
  },
  'rotate-bmc': {
    description: 'Change the password of the controller of a machine, in two phases: at no moment is it unknown',
    doing: 'changing the controller’s password of',
    examples: ['better-compute machine rotate-bmc gpu-0117 --reason "yearly"'],
  },
} satisfies Readonly<Record<string, BeginRow>>);

export type BeginKind = keyof typeof rows;
export const beginKinds = Object.keys(rows) as BeginKind[];

export function newMachineBegin(kind: BeginKind, ports: Ports, run: (options: BeginOptions) => Promise<void>): Command {
  const row: BeginRow = rows[kind];
  const command = new Command(kind).description(row.description).addArgument(new Argument('<machine>', 'machine id'));
  if (kind === 'provision') command.requiredOption('--profile <file>', 'what it is to be (profiles/*.yaml)');
  command.addOption(actorOption(ports.io)).addOption(reasonOption());
  if (row.question !== undefined) command.addOption(yesOption());
  command.action((machine: string, flags: Omit<BeginOptions, 'json' | 'machine' | 'yes'> & { readonly yes?: boolean }) =>
    run({ ...commonOptions(command), ...flags, machine, yes: flags.yes ?? false }),
  );
  return withExamples(command, row.examples);
}

export async function machineBeginRun(kind: BeginKind, options: BeginOptions, { io, machines }: Ports): Promise<void> {
  const { machine, actor, reason, yes, json, profile } = options;
  const row: BeginRow = rows[kind];
  // Before anybody is asked: a profile that cannot be used changes nothing.
  const document = profile === undefined ? null : readProfileFile(profile);
  if (row.question !== undefined) await assertConfirmed(io, yes, row.question(machine));
  const started =
    kind === 'provision'
      ? await machines().provision(machine, { actor, reason, profile: { ...document } })
      : await machines().begin(machine, kind, { actor, reason });
  if (json) return writeJson(io, started);
  io.out(`${row.doing} ${machine}: workflow ${started.workflowId}`);
  io.err(`follow it with: better-compute machine show ${machine} --watch`);
}
