import { Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { hour } from '../../../domain/time.ts';
import { approverSetPinForm, encodeJoinBundle, isApproverSetPin, parseJoinBundle } from '../../../pki/enroll/index.ts';
import { actorOption, type CommonOptions, commonOptions, duration, withExamples } from '../../command.ts';
import { instantText } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface TokensCreateOptions extends CommonOptions {
  readonly tenant: string;
  readonly site: string;
  readonly role: 'node' | 'site';
  readonly node: string | null;
  readonly lifetimeMs: number;
  readonly actor: string;
  /** Pins the machine's first approver set; null: it is taken as it comes. */
  readonly approverSetSha256: string | null;
}

export function newTokensCreate(ports: Ports, run: (options: TokensCreateOptions) => Promise<void>): Command {
  const command = new Command('create')
    .description('Create a join token: it is shown once, works once, and carries the pins a machine needs')
    .addOption(new Option('--tenant <tenant>', 'whose machine it is').default('default'))
    .addOption(new Option('--site <site>', 'site the machine belongs to').default('default'))
    .addOption(new Option('--role <role>', 'what the machine is').choices(['node', 'site']).default('node'))
    .option('--node <id>', 'node id the machine gets; a new one without')
    .addOption(new Option('--for <time>', 'how long the token works').default(hour, '1h').argParser(duration))
    .addOption(
      new Option(
        '--approver-set-sha256 <hex>',
        'the only first approver set the machine takes (pki trust-version prints it); put into the join string here, not by the api',
      ).argParser(approverSetPin),
    )
    .addOption(actorOption(ports.io))
    .action(
      (flags: {
        tenant: string;
        site: string;
        role: 'node' | 'site';
        node?: string;
        for: number;
        actor: string;
        approverSetSha256?: string;
      }) =>
        run({
          ...commonOptions(command),
          tenant: flags.tenant,
          site: flags.site,
          role: flags.role,
          node: flags.node ?? null,
          lifetimeMs: flags.for,
          actor: flags.actor,
          approverSetSha256: flags.approverSetSha256 ?? null,
        }),
    );
  return withExamples(command, [
    'better-compute tokens create --site eu-1',
    'better-compute tokens create --site eu-1 --node node-17 --for 15m',
    'bcd join "$(better-compute tokens create)"',
  ]);
}

function approverSetPin(value: string): string {
  if (isApproverSetPin(value)) return value;
  throw new InvalidArgumentError(`It must be ${approverSetPinForm}.`);
}

export async function tokensCreateRun(
  { json, tenant, site, node, approverSetSha256, ...options }: TokensCreateOptions,
  { io, api }: Ports,
): Promise<void> {
  const answer = await api().createToken({ tenantId: tenant, siteId: site, nodeId: node, ...options });
  const created = { ...answer, join: pinned(answer.join, approverSetSha256) };
  if (json) return writeJson(io, created);
  // The token alone on standard output, so that a shell can hand it on.
  io.out(created.join ?? created.token);
  io.err(`token ${created.tokenId} works once, until ${instantText(created.expiresAt)}; on the machine: bcd join <token>`);
}

/** On this host, because the pin is about an api that may be hostile (PIN-001). @throws INVALID_STATE when there is no join string to put it into */
function pinned(join: string | null, approverSetSha256: string | null): string | null {
  if (approverSetSha256 === null) return join;
  if (join === null) {
    throw new ControlError('INVALID_STATE', 'the api knows no gateway, so there is no join string that could carry the approver set', {
      details: { reason: 'no-join-string', hint: 'give it on the machine: bcd join --approver-set-sha256' },
    });
  }
  return encodeJoinBundle({ ...parseJoinBundle(join), approverSetSha256 });
}
