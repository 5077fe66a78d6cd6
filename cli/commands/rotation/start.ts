import { Command, Option } from 'commander';
import { actorOption, type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { commandRoot, type RotationTarget, type TargetFlags, targetFlags, targetOf, withTarget } from '../../rotation-target.ts';

export interface RotationStartOptions extends CommonOptions {
  /** The command root without. */
  readonly target?: RotationTarget;
  readonly actor: string;
  readonly reason: string;
}

export function newRotationStart(ports: Ports, run: (options: RotationStartOptions) => Promise<void>): Command {
  const command = withTarget(new Command('start'))
    .description('Start a rotation, of the command-signing root unless --key names another; a second one is refused while one runs')
    .addOption(actorOption(ports.io))
    .addOption(new Option('--reason <text>', 'why, for the audit trail').default(''))
    .action(({ actor, reason, ...flags }: Omit<RotationStartOptions, 'json' | 'target'> & TargetFlags) =>
      run({ ...commonOptions(command), actor, reason, target: targetOf(flags) }),
    );
  return withExamples(command, [
    'better-compute rotation start',
    'better-compute rotation start --reason "yearly"',
    'better-compute rotation start --key ticket',
    'better-compute rotation start --key ca --ca serving',
  ]);
}

export async function rotationStartRun(options: RotationStartOptions, ports: Ports): Promise<void> {
  const rotation = await ports.rotation(options.target);
  try {
    const started = await rotation.start({ actor: options.actor, reason: options.reason });
    if (options.json) return writeJson(ports.io, started);
    ports.io.out(`rotation started: workflow ${started.workflowId}, run ${started.runId}`);
    ports.io.err(`follow it with: better-compute rotation watch${targetFlags(options.target ?? commandRoot)}`);
  } finally {
    await rotation.close();
  }
}
