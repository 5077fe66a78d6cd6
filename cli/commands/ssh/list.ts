import { Command, Option } from 'commander';
import { showInstant } from '../../../domain/time.ts';
import { type CommonOptions, commonOptions, wholeNumber, withExamples } from '../../command.ts';
import { table } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface SshListOptions extends CommonOptions {
  readonly node: string | null;
  readonly limit: number;
}

export function newSshList(run: (options: SshListOptions) => Promise<void>): Command {
  const command = new Command('list')
    .description('List the break-glass certificates that were issued, the newest first')
    .option('--node <id>', 'only those for this node')
    .addOption(new Option('--limit <n>', 'at most so many').default(50).argParser(wholeNumber))
    .action((flags: { node?: string; limit: number }) => run({ ...commonOptions(command), node: flags.node ?? null, limit: flags.limit }));
  return withExamples(command, ['better-compute ssh list', 'better-compute ssh list --node node-17 --json']);
}

export async function sshListRun({ node, limit, json }: SshListOptions, { io, api }: Ports): Promise<void> {
  const certificates = await api().listSshCertificates({ limit, ...(node === null ? {} : { node }) });
  if (json) return writeJson(io, { certificates });
  if (certificates.length === 0) return io.err('no certificate was issued');
  const rows = certificates.map(({ serial, principal, keyId, validBefore, revokedAt }) => [
    serial,
    principal,
    keyId,
    showInstant(validBefore),
    revokedAt === null ? '-' : showInstant(revokedAt),
  ]);
  io.out(table(['SERIAL', 'PRINCIPAL', 'KEY ID', 'UNTIL', 'REVOKED'], rows));
}
