/** `better-compute ssh …`: certificates and revocation lists of the SSH authorities, from the key bundle alone. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newSshKrl, sshKrlRun } from './krl.ts';
import { newSshSign, sshSignRun } from './sign.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'ssh', 'Break-glass access: sign OpenSSH certificates, revoke them')
    .addCommand(newSshSign(ports, (options) => sshSignRun(options, ports)))
    .addCommand(newSshKrl((options) => sshKrlRun(options, ports)));
}
