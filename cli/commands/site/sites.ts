import { Argument, Command } from 'commander';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import { siteFacts, siteTable } from '../../machines/view.ts';
import type { Ports } from '../../ports.ts';

export interface SiteShowOptions extends CommonOptions {
  readonly site: string;
}

export function newSiteList(run: (options: CommonOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List the sites with their agents, their machines by state and their open runs')
    .action(() => run(commonOptions(command)));
  return withExamples(command, ['better-compute site list', 'better-compute site list --json']);
}

export async function siteListRun({ json }: CommonOptions, { io, machines }: Ports): Promise<void> {
  const sites = await machines().sites();
  if (json) return writeJson(io, { sites });
  if (sites.length === 0) return io.err('no site; one begins with its agent: better-compute tokens create --site <site> --role site');
  io.out(siteTable(sites));
}

export function newSiteShow(run: (options: SiteShowOptions) => Promise<void>): Command {
  const command = new Command('show')
    .description('Show a site: each agent and when it was seen, machines by state and rack')
    .addArgument(new Argument('<site>', 'site id'))
    .action((site: string) => run({ ...commonOptions(command), site }));
  return withExamples(command, ['better-compute site show hel-1']);
}

export async function siteShowRun({ site, json }: SiteShowOptions, { io, machines }: Ports): Promise<void> {
  const found = await machines().site(site);
  if (json) return writeJson(io, found);
  io.out(siteFacts(found, io.now()));
}
