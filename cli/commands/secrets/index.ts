/** `better-compute secrets …` */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newSecretsDelete, secretsDeleteRun } from './delete.ts';
import { newSecretsList, secretsListRun } from './list.ts';
import { newSecretsSet, secretsSetRun } from './set.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'secrets', 'Keep what machines ask for by reference: nothing here shows a value')
    .addCommand(newSecretsSet(ports, (options) => secretsSetRun(options, ports)))
    .addCommand(newSecretsList((options) => secretsListRun(options, ports)))
    .addCommand(newSecretsDelete(ports, (options) => secretsDeleteRun(options, ports)));
}
