import { Command, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import { actorOption, duration, withExamples } from '../../command.ts';
import { QuietExit } from '../../exit.ts';
import type { Ports } from '../../ports.ts';
import { entryOf } from '../../stack/entries.ts';
import { loginToGuest } from '../../tunnels/ssh-login.ts';

export interface SandboxExecOptions {
  readonly instance: string;
  readonly account: string;
  readonly lifetimeMs: number;
  readonly actor: string;
  readonly command: readonly string[];
}

interface Flags {
  readonly instance: string;
  readonly account: string;
  readonly for: number;
  readonly actor: string;
}

const lifetimes = Object.freeze({ leastMs: 60 * second, mostMs: 900 * second });

export function newSandboxExec(ports: Ports, run: (options: SandboxExecOptions) => Promise<void>): Command {
  const command = new Command('exec')
    .description('Run a command in the guest of a sandbox, or a shell, over a tunnel; the exit code is the command’s')
    .argument('[command...]', 'what runs there; after --')
    .addOption(new Option('--instance <id>', 'the instance of the sandbox').makeOptionMandatory())
    .option('--account <name>', 'the account in the guest', 'sandbox')
    .addOption(new Option('--for <time>', 'how long the login may begin: 60s to 15m').default(lifetimes.mostMs, '15m').argParser(duration))
    .addOption(actorOption(ports.io))
    .action((words: string[], { for: lifetimeMs, ...flags }: Flags) => run({ ...flags, lifetimeMs, command: words }));
  return withExamples(command, [
    'better-compute sandbox exec --instance i-0a1b',
    'better-compute sandbox exec --instance i-0a1b --account root -- journalctl -b',
  ]);
}

/** SBX-001, SBX-024. The tunnel is asked for by a run of this program of its own, as the ProxyCommand of ssh. */
export async function sandboxExecRun(
  { instance, account, lifetimeMs, actor, command }: SandboxExecOptions,
  { io, api }: Ports,
): Promise<void> {
  if (lifetimeMs < lifetimes.leastMs || lifetimeMs > lifetimes.mostMs)
    throw new ControlError('INVALID_INPUT', '--for must be 60s to 15m', {
      details: { reason: 'flags', hint: 'a session that is open goes on' },
    });
  const code = await loginToGuest({
    certify: async (publicKey) => {
      const login = await api().execSandbox(instance, { account, publicKey, ttlSeconds: Math.floor(lifetimeMs / second), actor });
      return { ...login, account };
    },
    proxy: [process.execPath, ...entryOf('cli/main').args, 'tunnel', 'open', '--instance', instance, '--actor', actor],
    command,
    env: io.env,
  });
  if (code !== 0) throw new QuietExit(code);
}
