/** `better-compute tenants …` */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newTenantsCreate, tenantsCreateRun } from './create.ts';
import { newTenantsDelete, tenantsDeleteRun } from './delete.ts';
import { newTenantsList, tenantsListRun } from './list.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'tenants', 'Say whose machines and batches are whose')
    .addCommand(newTenantsCreate(ports, (options) => tenantsCreateRun(options, ports)))
    .addCommand(newTenantsList((options) => tenantsListRun(options, ports)))
    .addCommand(newTenantsDelete(ports, (options) => tenantsDeleteRun(options, ports)));
}
