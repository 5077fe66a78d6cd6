import { Argument, Command, InvalidArgumentError } from 'commander';
import { actorOption, commonOptions, reasonOption, type SignedOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface SshRevokeOptions extends SignedOptions {
  readonly serial: string;
}

export function newSshRevoke(ports: Ports, run: (options: SshRevokeOptions) => Promise<void>): Command {
  const command = new Command('revoke')
    .description('Take a break-glass certificate back: its node refuses it from its next desired state on')
    .addArgument(new Argument('<serial>', 'serial, as ssh sign printed it; ssh list shows them').argParser(parseSerial))
    .addOption(actorOption(ports.io))
    .addOption(reasonOption())
    .action((serial: string, flags: Omit<SshRevokeOptions, 'json' | 'serial'>) => run({ ...commonOptions(command), ...flags, serial }));
  return withExamples(command, ['better-compute ssh revoke 4711 --reason "laptop lost"']);
}

function parseSerial(word: string): string {
  if (/^[1-9]\d{0,18}$/.test(word)) return word;
  throw new InvalidArgumentError('It must be a whole number in digits.');
}

export async function sshRevokeRun({ serial, actor, reason, json }: SshRevokeOptions, { io, api }: Ports): Promise<void> {
  const started = await api().revokeSshCertificate(serial, { actor, reason });
  if (json) return writeJson(io, started);
  io.out(`taking ${serial} back: workflow ${started.workflowId}`);
  io.err('sessions that are open stay open: end them on the machine');
}
