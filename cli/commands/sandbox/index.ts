/** `better-compute sandbox …`: what the instances of sandboxes are told, so that sandboxes.exec gets in and nothing else does. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newSandboxExec, sandboxExecRun } from './exec.ts';
import { newSandboxUserData, sandboxUserDataRun } from './user-data.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'sandbox', 'Instances of sandboxes: what they trust, and a way in')
    .addCommand(newSandboxUserData(ports, (options) => sandboxUserDataRun(options, ports)))
    .addCommand(newSandboxExec(ports, (options) => sandboxExecRun(options, ports)));
}
