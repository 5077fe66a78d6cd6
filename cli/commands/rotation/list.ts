import { Command } from 'commander';
import { isControlError } from '../../../domain/errors.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { agoText } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import type { AnyRotationRun } from '../../rotation-port.ts';
import { type RotationTarget, rotationTargets, targetName } from '../../rotation-target.ts';
import { watchLine } from '../../rotation-view.ts';

export function newRotationList(run: (options: CommonOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List the newest rotation of every key: the command root, the authorities, gateways, tickets, workload tokens')
    .action(() => run(commonOptions(command)));
  return withExamples(command, ['better-compute rotation list', 'better-compute rotation list --json']);
}

export async function rotationListRun(options: CommonOptions, ports: Ports): Promise<void> {
  const rows: { target: RotationTarget; run: AnyRotationRun | null }[] = [];
  for (const target of rotationTargets) rows.push({ target, run: await newestOf(target, ports) });
  if (options.json) return writeJson(ports.io, { rotations: rows.map(({ target, run }) => ({ ...target, run })) });
  const width = Math.max(...rows.map(({ target }) => targetName(target).length));
  for (const { target, run } of rows) ports.io.out(`${targetName(target).padEnd(width)}  ${describe(run, ports.io.now())}`);
}

const describe = (run: AnyRotationRun | null, now: number): string =>
  run === null ? 'never started' : `${watchLine(run)} (started ${agoText(run.startedAt, now)})`;

/** null: it never ran. */
async function newestOf(target: RotationTarget, ports: Ports): Promise<AnyRotationRun | null> {
  const rotation = await ports.rotation(target);
  try {
    return await rotation.find();
  } catch (error) {
    if (isControlError(error) && error.code === 'NOT_FOUND') return null;
    throw error;
  } finally {
    await rotation.close();
  }
}
