/** `better-compute evidence …`: what was signed about disks, checked without the deployment. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { evidenceVerifyRun, newEvidenceVerify } from './verify.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'evidence', 'What ramdisks signed about disks: check it, offline').addCommand(
    newEvidenceVerify((options) => evidenceVerifyRun(options, ports)),
  );
}
