import { extname } from 'node:path';
import { Argument, Command, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { type InventoryFormat, readInventory } from '../../../services/metal/inventory-text.ts';
import { showProblems } from '../../../services/metal/yaml-text.ts';
import { actorOption, type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import { readTextFile } from '../../machines/text-file.ts';
import type { Ports } from '../../ports.ts';

export interface MachineImportOptions extends CommonOptions {
  readonly path: string;
  /** null: as the name of the file ends. */
  readonly format: InventoryFormat | null;
  readonly dryRun: boolean;
  readonly actor: string;
}

interface Flags {
  readonly format?: InventoryFormat;
  readonly dryRun: boolean;
  readonly actor: string;
}

export function newMachineImport(ports: Ports, run: (options: MachineImportOptions) => Promise<void>): Command {
  const command = new Command('import')
    .description('Add the machines of an inventory (CSV or YAML): all of them, or none, with line and field of everything that is wrong')
    .addArgument(new Argument('<file>', 'the inventory'))
    .addOption(new Option('--format <format>', 'what it is; without, as its name ends').choices(['csv', 'yaml']))
    .option('--dry-run', 'judge everything, add nothing', false)
    .addOption(actorOption(ports.io))
    .action((path: string, { format, ...flags }: Flags) => run({ ...commonOptions(command), ...flags, path, format: format ?? null }));
  return withExamples(command, [
    'better-compute machine import rack7.csv --dry-run',
    'better-compute machine import hel-1.yaml',
    'better-compute machine import list.txt --format csv --json',
  ]);
}

const formats: Readonly<Record<string, InventoryFormat>> = Object.freeze({ '.csv': 'csv', '.yaml': 'yaml', '.yml': 'yaml' });

export async function machineImportRun(
  { path, format, dryRun, actor, json }: MachineImportOptions,
  { io, machines }: Ports,
): Promise<void> {
  const kind = format ?? formats[extname(path).toLowerCase()];
  if (kind === undefined) {
    throw new ControlError('INVALID_INPUT', `${path} does not say by its name what it is`, {
      details: { reason: 'unknown-format', hint: 'name it .csv or .yaml, or say --format' },
    });
  }
  const text = readTextFile(path);
  // What is wrong in the file itself is told here, without the deployment.
  const { problems } = readInventory(text, kind);
  if (problems.length > 0) {
    throw new ControlError('INVALID_INPUT', `${path} cannot be taken, and nothing of it was:\n${showProblems(problems)}`, {
      details: { reason: 'bad-inventory', problems },
    });
  }
  const answer = await machines().import({ text, format: kind, dryRun, actor });
  if (json) return writeJson(io, answer);
  io.out(dryRun ? `${answer.added.length} machine(s) could be added; nothing was` : `added ${answer.added.length} machine(s)`);
  if (!dryRun)
    io.err(
      'store the names and passwords of their controllers (better-compute secrets set), then inspect them: better-compute machine inspect',
    );
}
