import { Command } from 'commander';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { type RotationTarget, type TargetFlags, targetOf, withTarget } from '../../rotation-target.ts';
import { describeRun } from '../../rotation-view.ts';

export interface RotationStatusOptions extends CommonOptions {
  /** The command root without. */
  readonly target?: RotationTarget;
}

export function newRotationStatus(run: (options: RotationStatusOptions) => Promise<void>): Command {
  const command = withTarget(new Command('status'))
    .description('Show the newest rotation of a key: phase, from what to what, who is behind, what was overridden')
    .action((flags: TargetFlags) => run({ ...commonOptions(command), target: targetOf(flags) }));
  return withExamples(command, ['better-compute rotation status', 'better-compute rotation status --key ca --ca node --json']);
}

export async function rotationStatusRun(options: RotationStatusOptions, ports: Ports): Promise<void> {
  const rotation = await ports.rotation(options.target);
  try {
    const found = await rotation.find();
    if (options.json) return writeJson(ports.io, found);
    ports.io.out(describeRun(found, ports.io.now()));
  } finally {
    await rotation.close();
  }
}
