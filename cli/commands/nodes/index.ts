/** `better-compute nodes …` */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';

import { enrolRun, newEnrol, newReenrol } from './enrol.ts';
import { newNodesList, nodesListRun } from './list.ts';
import { newNodesReboot, nodesRebootRun } from './reboot.ts';
import { newSetCredential, setCredentialRun } from './set-credential.ts';
import { newNodesShow, nodesShowRun } from './show.ts';
import { newNodesDelete, newNodesRevoke, nodesDeleteRun, nodesRevokeRun } from './take-away.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'nodes', 'See the machines of the fleet, take an identity away, delete a node')
    .addCommand(newNodesList((options) => nodesListRun(options, ports)))
    .addCommand(newNodesShow((options) => nodesShowRun(options, ports)))
    .addCommand(newNodesReboot(ports, (options) => nodesRebootRun(options, ports)))
    .addCommand(newEnrol(ports, (options) => enrolRun(options, ports)))
    .addCommand(newReenrol(ports, (options) => enrolRun(options, ports)))
    .addCommand(newSetCredential(ports, (options) => setCredentialRun(options, ports)))
    .addCommand(newNodesRevoke(ports, (options) => nodesRevokeRun(options, ports)))
    .addCommand(newNodesDelete(ports, (options) => nodesDeleteRun(options, ports)));
}
