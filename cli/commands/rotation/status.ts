import { Command } from 'commander';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { describeRun } from '../../rotation-view.ts';

export function newRotationStatus(run: (options: CommonOptions) => Promise<void>): Command {
  const command = new Command('status')
    .description('Show the newest rotation: phase, roots, who is behind, what was overridden')
    .action(() => run(commonOptions(command)));
  return withExamples(command, ['better-compute rotation status', 'better-compute rotation status --json']);
}

export async function rotationStatusRun(options: CommonOptions, ports: Ports): Promise<void> {
  const rotation = await ports.rotation();
  try {
    const found = await rotation.find();
    if (options.json) return writeJson(ports.io, found);
    ports.io.out(describeRun(found, ports.io.now()));
  } finally {
    await rotation.close();
  }
}
