/** `better-compute joins …` */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { joinsDecideRun, newJoinsDecide } from './decide.ts';
import { joinsListRun, newJoinsList } from './list.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'joins', 'Decide over machines whose join waits for a person')
    .addCommand(newJoinsList((options) => joinsListRun(options, ports)))
    .addCommand(newJoinsDecide(ports, 'approve', (options) => joinsDecideRun(options, ports)))
    .addCommand(newJoinsDecide(ports, 'refuse', (options) => joinsDecideRun(options, ports)));
}
