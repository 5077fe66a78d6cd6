/** `better-compute pki …`: the key bundle, its pins, gateway certificates and the steps of a rotation by hand. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newRotationVerify, rotationVerifyRun } from '../rotation/verify.ts';
import { newPkiAddSandboxCa, pkiAddSandboxCaRun } from './add-sandbox-ca.ts';
import { createPkiPorts, type PkiPorts } from './deployment.ts';
import { newPkiInit, pkiInitRun } from './init.ts';
import { newPkiIssueGateway, pkiIssueGatewayRun } from './issue-gateway.ts';
import { newPkiRenewCa, pkiRenewCaRun } from './renew-ca.ts';
import { newPkiReseal, pkiResealRun } from './reseal.ts';
import { newPkiRotateCommandRoot, pkiRotateCommandRootRun } from './rotate-command-root.ts';
import { newPkiShow, pkiShowRun } from './show.ts';
import { newPkiTrustVersion, pkiTrustVersionRun } from './trust-version.ts';

export function register(program: Command, io: CliIo, ports: Ports | PkiPorts = createPorts(io)): void {
  const pkiPorts = 'deployment' in ports ? ports : createPkiPorts(ports);
  const pki = findGroup(program, 'pki', "The deployment's keys: create, show, seal, issue, renew, rotate")
    .addCommand(newPkiInit((options) => pkiInitRun(options, pkiPorts)))
    .addCommand(newPkiShow((options) => pkiShowRun(options, pkiPorts)))
    .addCommand(newPkiReseal((options) => pkiResealRun(options, pkiPorts)))
    .addCommand(newPkiIssueGateway((options) => pkiIssueGatewayRun(options, pkiPorts)))
    .addCommand(newPkiRenewCa((options) => pkiRenewCaRun(options, pkiPorts)))
    .addCommand(newPkiAddSandboxCa((options) => pkiAddSandboxCaRun(options, pkiPorts)))
    .addCommand(newPkiRotateCommandRoot(pkiPorts, (options) => pkiRotateCommandRootRun(options, pkiPorts)))
    .addCommand(newPkiTrustVersion((options) => pkiTrustVersionRun(options, pkiPorts)));
  findGroup(pki, 'rotation', 'The evidence of a rotation').addCommand(
    newRotationVerify((options) => rotationVerifyRun(options, ports), 'pki rotation verify'),
  );
}
