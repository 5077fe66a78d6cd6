/** `better-compute daemon …`: what machines need to become part of the fleet. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { installScriptRun, newInstallScript } from './install-script.ts';
import { newSignRelease, signReleaseRun } from './sign-release.ts';
import { daemonUpgradeRun, newDaemonUpgrade } from './upgrade.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'daemon', 'Install the daemon on machines, and upgrade it')
    .addCommand(newInstallScript((options) => installScriptRun(options, ports)))
    .addCommand(newSignRelease((options) => signReleaseRun(options, ports)))
    .addCommand(newDaemonUpgrade(ports, (options) => daemonUpgradeRun(options, ports)));
}
