/** `better-compute fleet …`: what is done to many machines, a few at a time. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { fleetReimageRun, newFleetReimage } from './reimage.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'fleet', 'Many machines, a few at a time').addCommand(
    newFleetReimage(ports, (options) => fleetReimageRun(options, ports)),
  );
}
