/** `better-compute ssh …`: certificates of the SSH authorities, from the key bundle; what was issued is written down, and taken back. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newSshKrl, sshKrlRun } from './krl.ts';
import { newSshList, sshListRun } from './list.ts';
import { newSshRevoke, sshRevokeRun } from './revoke.ts';
import { newSshSign, sshSignRun } from './sign.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'ssh', 'Break-glass access: sign OpenSSH certificates, revoke them')
    .addCommand(newSshSign(ports, (options) => sshSignRun(options, ports)))
    .addCommand(newSshList((options) => sshListRun(options, ports)))
    .addCommand(newSshRevoke(ports, (options) => sshRevokeRun(options, ports)))
    .addCommand(newSshKrl((options) => sshKrlRun(options, ports)));
}
