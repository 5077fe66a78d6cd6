/** `better-compute tunnel …`: bytes to a machine or an instance, over its own connection to the gateway. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newTunnelOpen, tunnelOpenRun } from './open.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'tunnel', 'Reach machines and instances over their own connection').addCommand(
    newTunnelOpen(ports, (options) => tunnelOpenRun(options, ports)),
  );
}
