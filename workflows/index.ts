/** Every export is a workflow type, or the definition of a message. */
export { approveBatch } from './approve-batch/workflow.ts';
export { checkpointAudit } from './checkpoint-audit/workflow.ts';
export { inspectMachine } from './inspect-machine/workflow.ts';
export { provisionMachine } from './provision-machine/workflow.ts';
export { rebootNodes } from './reboot-nodes/workflow.ts';
export { reconcileBatches } from './reconcile-batches/workflow.ts';
export { reconcileCommands } from './reconcile-commands/workflow.ts';
export { reimageFleet } from './reimage-fleet/workflow.ts';
export { resignExpiring } from './resign-expiring/workflow.ts';
export { retireMachine } from './retire-machine/workflow.ts';
export { revokeIdentity } from './revoke-identity/workflow.ts';
export { revokeSshCertificate } from './revoke-ssh-certificate/workflow.ts';
export { rotateApproverSet } from './rotate-approver-set/workflow.ts';
export { rotateBmcCredentials } from './rotate-bmc-credentials/workflow.ts';
export { rotateCommandRoot } from './rotate-command-root/workflow.ts';
export { renewCa, rotateGatewayCertificate, rotateTicketKey, rotateWorkloadKey } from './rotate-key/workflows.ts';
export { runCommand } from './run-command/workflow.ts';
export { setNodeCredential } from './set-node-credential/workflow.ts';
