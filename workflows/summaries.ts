/**
 * What each workflow type is for, in one line. A starter may give it as the static summary; a run that was started without one, from
 * the command line or the UI, still says it, as the search attribute BcSummary.
 */
import { staticSummary as approveBatch } from './approve-batch/messages.ts';
import { enrolmentTypes } from './enrol-node/messages.ts';
import { staticSummary as inspectMachine } from './inspect-machine/messages.ts';
import { staticSummary as provisionMachine } from './provision-machine/messages.ts';
import { staticSummary as rebootNodes } from './reboot-nodes/messages.ts';
import { staticSummary as reimageFleet } from './reimage-fleet/messages.ts';
import { staticSummary as retireMachine } from './retire-machine/messages.ts';
import { staticSummary as revokeIdentity } from './revoke-identity/messages.ts';
import { staticSummary as revokeSshCertificate } from './revoke-ssh-certificate/messages.ts';
import { staticSummary as rotateApproverSet } from './rotate-approver-set/messages.ts';
import { staticSummary as rotateBmcCredentials } from './rotate-bmc-credentials/messages.ts';
import { staticSummary as rotateCommandRoot } from './rotate-command-root/messages.ts';
import { keyWorkflows } from './rotate-key/messages.ts';
import { staticSummary as runCommand } from './run-command/messages.ts';
import { staticSummary as setNodeCredential } from './set-node-credential/messages.ts';

export const summaries: Readonly<Record<string, string>> = Object.freeze({
  approveBatch,
  inspectMachine,
  provisionMachine,
  rebootNodes,
  reimageFleet,
  retireMachine,
  rotateApproverSet,
  rotateBmcCredentials,
  rotateCommandRoot,
  revokeIdentity,
  revokeSshCertificate,
  runCommand,
  setNodeCredential,
  ...Object.fromEntries(Object.values(enrolmentTypes).map(({ type, summary }) => [type, summary])),
  ...Object.fromEntries(Object.values(keyWorkflows).map(({ type, summary }) => [type, summary])),
});
