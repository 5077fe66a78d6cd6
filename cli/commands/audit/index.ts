/** `better-compute audit …`: the audit trail and its checkpoints. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { auditVerifyRun, newAuditVerify } from './verify.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'audit', 'The audit trail: check it against the pin of the audit key').addCommand(
    newAuditVerify((options) => auditVerifyRun(options, ports)),
  );
}
