import { Command, Option } from 'commander';
import type { SecretAnswer } from '../../api-client.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { instantText, table } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface SecretsListOptions extends CommonOptions {
  readonly prefix: string;
}

export function newSecretsList(run: (options: SecretsListOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List the secrets: path, version, who set it and when; never a value')
    .addOption(new Option('--prefix <path>', 'only those whose path starts so').default(''))
    .action((flags: { prefix: string }) => run({ ...commonOptions(command), prefix: flags.prefix }));
  return withExamples(command, ['better-compute secrets list', 'better-compute secrets list --prefix bmc/ --json']);
}

const pageSize = 1_000;

export async function secretsListRun({ prefix, json }: SecretsListOptions, { io, api }: Ports): Promise<void> {
  const client = api();
  const found: SecretAnswer[] = [];
  for (let next: string | null = ''; next !== null; ) {
    const page: Awaited<ReturnType<typeof client.listSecrets>> = await client.listSecrets({ prefix, after: next, limit: pageSize });
    found.push(...page.secrets);
    next = page.next;
  }
  if (json) return writeJson(io, { secrets: found });
  if (found.length === 0) return io.err('no secret; keep one with: better-compute secrets set');
  io.out(
    table(
      ['SECRET', 'VERSION', 'SINCE', 'BY'],
      found.map(({ path, version, createdAt, createdBy }) => [path, String(version), instantText(createdAt), createdBy]),
    ),
  );
}
