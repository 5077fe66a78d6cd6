/** `better-compute commands …` */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { commandsRunRun, newCommandsRun } from './run.ts';
import { commandsShowRun, newCommandsShow } from './show.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'commands', 'Run signed commands on nodes')
    .addCommand(newCommandsRun(ports, (options) => commandsRunRun(options, ports)))
    .addCommand(newCommandsShow((options) => commandsShowRun(options, ports)));
}
