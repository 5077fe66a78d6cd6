/** `better-compute tokens …` */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newTokensCreate, tokensCreateRun } from './create.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'tokens', 'Let machines join').addCommand(newTokensCreate(ports, (options) => tokensCreateRun(options, ports)));
}
