/** `better-compute enrolments …` */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { enrolmentsCancelRun, newEnrolmentsCancel } from './cancel.ts';
import { enrolmentsListRun, newEnrolmentsList } from './list.ts';
import { enrolmentsShowRun, newEnrolmentsShow } from './show.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'enrolments', 'See and end what gives machines their identity over SSH')
    .addCommand(newEnrolmentsList((options) => enrolmentsListRun(options, ports)))
    .addCommand(newEnrolmentsShow((options) => enrolmentsShowRun(options, ports)))
    .addCommand(newEnrolmentsCancel(ports, (options) => enrolmentsCancelRun(options, ports)));
}
