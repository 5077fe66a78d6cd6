/** `better-compute profile …`: what machines are made of, as files. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newProfileValidate, profileValidateRun } from './validate.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'profile', 'What machines are made of: check the file before a run uses it').addCommand(
    newProfileValidate((options) => profileValidateRun(options, ports)),
  );
}
