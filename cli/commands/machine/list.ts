import { Command, Option } from 'commander';
import { machineStates } from '../../../domain/metal/life-cycle.ts';
import { type CommonOptions, commonOptions, wholeNumber, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import { machineTable } from '../../machines/view.ts';
import type { Ports } from '../../ports.ts';

export interface MachineListOptions extends CommonOptions {
  readonly state: string | null;
  readonly site: string | null;
  readonly limit: number;
  readonly after: string;
}

interface Flags {
  readonly state?: string;
  readonly site?: string;
  readonly limit: number;
  readonly after: string;
}

export function newMachineList(run: (options: MachineListOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List machines: state, power, what is on them, and the step their run is at')
    .addOption(new Option('--state <state>', 'only those').choices(machineStates))
    .option('--site <site>', 'only those of a site')
    .addOption(new Option('--limit <count>', 'at most so many').default(1_000).argParser(wholeNumber))
    .option('--after <machine>', 'go on behind this one', '')
    .action(({ state, site, ...rest }: Flags) => run({ ...commonOptions(command), ...rest, state: state ?? null, site: site ?? null }));
  return withExamples(command, ['better-compute machine list', 'better-compute machine list --site hel-1 --state quarantined --json']);
}

const pageSize = 1_000;

export async function machineListRun({ state, site, limit, after, json }: MachineListOptions, { io, machines }: Ports): Promise<void> {
  const client = machines();
  const found: Awaited<ReturnType<typeof client.list>>['machines'] = [];
  let next: string | null = after;
  while (next !== null && found.length < limit) {
    const page = await client.list({
      after: next,
      limit: Math.min(pageSize, limit - found.length),
      state: state ?? undefined,
      site: site ?? undefined,
    });
    found.push(...page.machines);
    next = page.next;
  }
  if (json) return writeJson(io, { machines: found, next });
  if (found.length === 0)
    return io.err('no machine; add one with: better-compute machine add, or a list of them with: better-compute machine import');
  io.out(machineTable(found, io.now()));
  if (next !== null) io.err(`there are more: --after ${next}`);
}
