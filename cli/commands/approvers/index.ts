/** `better-compute approvers …`: who approves, and how that is changed. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { approversRotateRun, newApproversRotate } from './rotate.ts';
import { approversShowRun, newApproversShow } from './show.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'approvers', 'Who approves destructive work, and how that is changed')
    .addCommand(newApproversShow((options) => approversShowRun(options, ports)))
    .addCommand(newApproversRotate(ports, (options) => approversRotateRun(options, ports)));
}
