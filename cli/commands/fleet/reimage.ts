import { Argument, Command, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import type { FleetLimits, FleetStopRules } from '../../../workflows/reimage-fleet/messages.ts';
import {
  actorOption,
  assertConfirmed,
  commonOptions,
  reasonOption,
  type SignedOptions,
  wholeNumber,
  withExamples,
  yesOption,
} from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { MachineClient } from '../../machines/client.ts';
import { readProfileFile } from '../../machines/profile-file.ts';
import type { Ports } from '../../ports.ts';

export interface FleetReimageOptions extends SignedOptions {
  /** Empty: those of the site. */
  readonly machines: readonly string[];
  readonly site: string | null;
  readonly profile: string;
  /** Names the run. */
  readonly run: string;
  readonly limits: Partial<FleetLimits>;
  readonly stop: Partial<FleetStopRules>;
  readonly yes: boolean;
}

interface Flags {
  readonly site?: string;
  readonly profile: string;
  readonly run: string;
  readonly atOnce?: number;
  readonly perRack?: number;
  readonly perSite?: number;
  readonly maxFailures?: number;
  readonly maxFailurePercent?: number;
  readonly actor: string;
  readonly reason: string;
  readonly yes: boolean;
}

const count = (name: string, what: string): Option => new Option(`${name} <count>`, what).argParser(wholeNumber);

export function newFleetReimage(ports: Ports, run: (options: FleetReimageOptions) => Promise<void>): Command {
  const command = new Command('reimage')
    .description('Provision many machines anew: a window that slides over them, limits by rack and site, rules that stop it')
    .addArgument(new Argument('[machines...]', 'machine ids'))
    .option('--site <site>', 'every machine of this site that is available or provisioned, instead of ids')
    .requiredOption('--profile <file>', 'what they are to be (profiles/*.yaml)')
    .requiredOption('--run <name>', 'name of this run: its workflow is fleet/<name>/reimage')
    .addOption(count('--at-once', 'machines in work at once; default 20'))
    .addOption(count('--per-rack', 'of one rack at once; default 4'))
    .addOption(count('--per-site', 'of one site at once; default 20'))
    .addOption(count('--max-failures', 'so many failures are borne, one more stops it; default 3'))
    .addOption(count('--max-failure-percent', 'the same as a share of those that have ended, from the tenth on; default 10'))
    .addOption(actorOption(ports.io))
    .addOption(reasonOption())
    .addOption(yesOption())
    .action((machines: string[], flags: Flags) => run({ ...commonOptions(command), ...toOptions(machines, flags) }));
  return withExamples(command, [
    'better-compute fleet reimage --site hel-1 --profile gpu-worker.yaml --run 2031-spring --per-rack 2 --reason "new image" --yes',
    'better-compute fleet reimage gpu-0117 gpu-0118 --profile gpu-worker.yaml --run pair --reason "driver" --yes --json',
  ]);
}

const given = <T extends object>(values: T): T =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as T;

const toOptions = (machines: string[], flags: Flags): Omit<FleetReimageOptions, 'json'> => ({
  machines,
  site: flags.site ?? null,
  profile: flags.profile,
  run: flags.run,
  limits: given({ total: flags.atOnce, perRack: flags.perRack, perSite: flags.perSite }) as Partial<FleetLimits>,
  stop: given({ maxFailures: flags.maxFailures, maxFailurePercent: flags.maxFailurePercent }) as Partial<FleetStopRules>,
  actor: flags.actor,
  reason: flags.reason,
  yes: flags.yes,
});

export async function fleetReimageRun(options: FleetReimageOptions, { io, machines }: Ports): Promise<void> {
  const profile = readProfileFile(options.profile);
  const client = machines();
  const chosen = await machinesOf(options, client);
  await assertConfirmed(io, options.yes, `Wipe every disk of ${chosen.length} machine(s) and write them anew?`);
  const { run, limits, stop, actor, reason } = options;
  const started = await client.reimage({
    run,
    machines: chosen,
    profile: { ...profile },
    ...(Object.keys(limits).length === 0 ? {} : { limits }),
    ...(Object.keys(stop).length === 0 ? {} : { stop }),
    actor,
    reason,
  });
  if (options.json) return writeJson(io, { ...started, machines: chosen });
  io.out(`reimaging ${chosen.length} machine(s): workflow ${started.workflowId}`);
  io.err(`each is a run of its own with its own batch: better-compute machine list; what waits: better-compute stuck`);
}

const wanted: ReadonlySet<string> = new Set(['available', 'provisioned']);

/** @throws INVALID_INPUT when none, or both, are named; NOT_FOUND when the site has none to give */
async function machinesOf({ machines, site }: FleetReimageOptions, client: MachineClient): Promise<string[]> {
  if ((site === null) === (machines.length === 0)) {
    const message = site === null ? 'no machine is named: give machine ids, or --site' : '--site and machine ids exclude each other';
    throw new ControlError('INVALID_INPUT', message, { details: { reason: 'no-target' } });
  }
  if (site === null) return [...machines];
  const found: string[] = [];
  for (let after: string | null = ''; after !== null; ) {
    const page: Awaited<ReturnType<MachineClient['list']>> = await client.list({ after, limit: 1_000, site });
    found.push(...page.machines.filter(({ state }) => wanted.has(state)).map(({ id }) => id));
    after = page.next;
  }
  if (found.length > 0) return found;
  throw new ControlError('NOT_FOUND', `no machine of site ${site} is available or provisioned`, {
    details: { reason: 'no-machine', site },
  });
}
