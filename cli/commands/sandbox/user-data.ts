import { Command, Option } from 'commander';
import { day, showInstant } from '../../../domain/time.ts';
import { openBundle } from '../../../pki/bundle/index.ts';
import { replaceWhole } from '../../../runtime/bundle-file-store.ts';
import { sandboxExecOptions, vps } from '../../../services/vps-module.ts';
import { actorOption, type CommonOptions, commonOptions, duration, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { openOptionsOf, pkiOption, withSource } from '../pki/source.ts';
import { sshAuthorityOf } from '../ssh/files.ts';

export interface SandboxUserDataOptions extends CommonOptions {
  readonly instance: string;
  readonly account: string;
  readonly lifetimeMs: number;
  readonly actor: string;
  readonly out: string | null;
  readonly pki: string | null;
}

interface Flags {
  readonly instance: string;
  readonly account: string;
  readonly for: number;
  readonly actor: string;
  readonly out?: string;
  readonly pki?: string;
}

export function newSandboxUserData(ports: Ports, run: (options: SandboxUserDataOptions) => Promise<void>): Command {
  const command = new Command('user-data')
    .description("Write the user data of a sandbox's instance: a host key with its certificate, and whom the guest lets in")
    .addOption(new Option('--instance <id>', 'the instance it is for, and no other').makeOptionMandatory())
    .option('--account <name>', 'the account that sandboxes.exec logs in to', 'sandbox')
    .addOption(
      new Option('--for <time>', 'how long the sandbox lives; its host certificate ends with it, after 30d at the latest')
        .default(30 * day, '30d')
        .argParser(duration),
    )
    .addOption(actorOption(ports.io))
    .option('--out <file>', 'where it goes, for its owner only (default: standard output)')
    .addOption(pkiOption())
    .action(({ for: lifetimeMs, out, pki, ...flags }: Flags) =>
      run({ ...commonOptions(command), ...flags, lifetimeMs, out: out ?? null, pki: pki ?? null }),
    );
  return withExamples(command, [
    'better-compute sandbox user-data --instance i-0a1b --for 4h --out i-0a1b.yaml',
    'better-compute sandbox user-data --instance i-0a1b --account root | create-instance --user-data -',
  ]);
}

/** SBX-008, SBX-012 to SBX-014, SBX-018, SBX-023. */
export async function sandboxUserDataRun(options: SandboxUserDataOptions, ports: Ports): Promise<void> {
  const { instance: instanceId, account, actor: keyId, lifetimeMs, out } = options;
  const { text } = await withSource(options.pki, ports, (source) => source.read());
  const sandboxSshCa = sshAuthorityOf(openBundle(text, openOptionsOf(ports)), 'sandboxSshCa');
  const { now } = ports.io;
  const module = vps({ sandboxExec: sandboxExecOptions({ sandboxSshCa }, { now }) });
  const { userData, serial, validBefore } = await module.guestUserData({
    instanceId,
    account,
    keyId,
    endsAt: now() + lifetimeMs,
    now: now(),
  });
  if (out !== null) await replaceWhole(out, userData);
  const facts = {
    instance: instanceId,
    principal: `${account}@${instanceId}`,
    serial: String(serial),
    validBefore: showInstant(validBefore),
  };
  if (options.json) return writeJson(ports.io, { ...facts, ...(out === null ? { userData } : { file: out }) });
  ports.io.out(out ?? userData.trimEnd());
  ports.io.err(`user data of ${facts.instance} for ${facts.principal}; its host certificate ${serial} is good until ${facts.validBefore}`);
  ports.io.err('it holds the private half of the host key: hand it to the instance and keep no copy');
}
