import { Command, Option } from 'commander';
import { hour } from '../../../domain/time.ts';
import { actorOption, type CommonOptions, commonOptions, duration, withExamples } from '../../command.ts';
import { instantText } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface TokensCreateOptions extends CommonOptions {
  readonly site: string;
  readonly role: 'node' | 'site';
  readonly node: string | null;
  readonly lifetimeMs: number;
  readonly actor: string;
}

export function newTokensCreate(ports: Ports, run: (options: TokensCreateOptions) => Promise<void>): Command {
  const command = new Command('create')
    .description('Create a join token: it is shown once, works once, and carries the pins a machine needs')
    .addOption(new Option('--site <site>', 'site the machine belongs to').default('default'))
    .addOption(new Option('--role <role>', 'what the machine is').choices(['node', 'site']).default('node'))
    .option('--node <id>', 'node id the machine gets; a new one without')
    .addOption(new Option('--for <time>', 'how long the token works').default(hour, '1h').argParser(duration))
    .addOption(actorOption(ports.io))
    .action((flags: { site: string; role: 'node' | 'site'; node?: string; for: number; actor: string }) =>
      run({
        ...commonOptions(command),
        site: flags.site,
        role: flags.role,
        node: flags.node ?? null,
        lifetimeMs: flags.for,
        actor: flags.actor,
      }),
    );
  return withExamples(command, [
    'better-compute tokens create --site eu-1',
    'better-compute tokens create --site eu-1 --node node-17 --for 15m',
    'bcd join "$(better-compute tokens create)"',
  ]);
}

export async function tokensCreateRun({ json, site, node, ...options }: TokensCreateOptions, { io, api }: Ports): Promise<void> {
  const created = await api().createToken({ siteId: site, nodeId: node, ...options });
  if (json) return writeJson(io, created);
  // The token alone on standard output, so that a shell can hand it on.
  io.out(created.join ?? created.token);
  io.err(`token ${created.tokenId} works once, until ${instantText(created.expiresAt)}; on the machine: bcd join <token>`);
}
