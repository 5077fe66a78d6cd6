import { Command, Option } from 'commander';
import { actorOption, type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface RotationStartOptions extends CommonOptions {
  readonly actor: string;
  readonly reason: string;
}

export function newRotationStart(ports: Ports, run: (options: RotationStartOptions) => Promise<void>): Command {
  const command = new Command('start')
    .description('Start a rotation of the command-signing root; a second one is refused while one runs')
    .addOption(actorOption(ports.io))
    .addOption(new Option('--reason <text>', 'why, for the audit trail').default(''))
    .action((flags: Omit<RotationStartOptions, 'json'>) => run({ ...commonOptions(command), ...flags }));
  return withExamples(command, ['better-compute rotation start', 'better-compute rotation start --reason "yearly"']);
}

export async function rotationStartRun(options: RotationStartOptions, ports: Ports): Promise<void> {
  const rotation = await ports.rotation();
  try {
    const started = await rotation.start({ actor: options.actor, reason: options.reason });
    if (options.json) return writeJson(ports.io, started);
    ports.io.out(`rotation started: workflow ${started.workflowId}, run ${started.runId}`);
    ports.io.err('follow it with: better-compute rotation watch');
  } finally {
    await rotation.close();
  }
}
