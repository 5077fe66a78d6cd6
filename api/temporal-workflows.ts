/** The workflows an operator starts through the API. */
import type { Client } from '@temporalio/client';
import type { WavePlan } from '../domain/batch/waves.ts';
import { codeOf } from '../domain/errors.ts';
import { workflowIds } from '../temporal.config.ts';
import { type EnrolNodeInput, enrolmentTypes } from '../workflows/enrol-node/messages.ts';
import { type RebootNodesInput, staticSummary as rebootSummary } from '../workflows/reboot-nodes/messages.ts';
import { type RevokeIdentityInput, staticSummary as revokeSummary } from '../workflows/revoke-identity/messages.ts';
import { type RevokeSshCertificateInput, staticSummary as sshRevokeSummary } from '../workflows/revoke-ssh-certificate/messages.ts';
import { type RunCommandInput, staticSummary as runSummary } from '../workflows/run-command/messages.ts';
import { staticSummary as credentialSummary, type SetNodeCredentialInput } from '../workflows/set-node-credential/messages.ts';
import type { OperatorWorkflows } from './ports.ts';
import { createStartWorkflow } from './start-workflow.ts';
import { listStoppedSchedules } from './stuck-schedules.ts';
import { listUnwatchedBatches, listUnwatchedEnrolments } from './stuck-unwatched.ts';
import { listStuckWorkflows } from './stuck-workflows.ts';
import { calling } from './temporal-errors.ts';

export function createOperatorWorkflows(client: () => Promise<Client>, now: () => number): OperatorWorkflows {
  const start = createStartWorkflow(client);
  return {
    startRevoke: (input: RevokeIdentityInput) =>
      start('revokeIdentity', { workflowId: workflowIds.revokeIdentity(input.nodeId), input, summary: revokeSummary }),
    startSshRevoke: (input: RevokeSshCertificateInput) =>
      start('revokeSshCertificate', { workflowId: workflowIds.revokeSshCertificate(input.serial), input, summary: sshRevokeSummary }),
    startSetCredential: (input: SetNodeCredentialInput) =>
      start('setNodeCredential', {
        workflowId: workflowIds.setNodeCredential(input.nodeId, input.name),
        input,
        summary: credentialSummary,
      }),
    ...enrolmentsOf(client),
    startCommands: ({ unique, kind, nodes, payload, actor, reason, deadlineMs, batchId }) => {
      const input: RunCommandInput = {
        kind: kind as RunCommandInput['kind'],
        nodes,
        payload,
        actor,
        ...(reason === undefined ? {} : { reason }),
        ...(deadlineMs === undefined ? {} : { deadlineMs }),
        ...(batchId === undefined ? {} : { batchId }),
      };
      return start('runCommand', { workflowId: workflowIds.runCommand(unique), input, summary: runSummary });
    },
    startReboots: ({ unique, nodes, actor, reason, delaySeconds, waves, windowMs }) => {
      const input: RebootNodesInput = {
        nodes,
        actor,
        reason,
        ...(delaySeconds === undefined ? {} : { delaySeconds }),
        ...(waves === undefined ? {} : { waves: waves as WavePlan }),
        ...(windowMs === undefined ? {} : { windowMs }),
      };
      return start('rebootNodes', { workflowId: workflowIds.rebootNodes(unique), input, summary: rebootSummary });
    },
    listUnwatched: (batches) => calling('the batches', async () => listUnwatchedBatches(await client(), batches, now())),
    listUnwatchedEnrolments: (enrolments) =>
      calling('the enrolments', async () => listUnwatchedEnrolments(await client(), enrolments, now())),
    listStuck: () =>
      calling('the list of workflows', async () => {
        const lists = [listStuckWorkflows(await client(), now()), listStoppedSchedules(await client())];
        return (await Promise.all(lists)).flat();
      }),
  };
}

const enrolmentsOf = (client: () => Promise<Client>): Pick<OperatorWorkflows, 'startEnrolment' | 'cancelEnrolment'> => ({
  startEnrolment: ({ kind, ...order }) => {
    const { type, summary } = enrolmentTypes[kind];
    const input: EnrolNodeInput = order;
    const { nodeId, enrolmentId } = order;
    return createStartWorkflow(client)(type, { workflowId: workflowIds.enrolment(nodeId), input, summary, memo: { enrolmentId } });
  },
  async cancelEnrolment({ nodeId, enrolmentId }) {
    const workflowId = workflowIds.enrolment(nodeId);
    try {
      await calling(`workflow ${workflowId}`, async () => {
        const { workflow } = await client();
        const { memo, runId } = await workflow.getHandle(workflowId).describe();
        // The node may have been ordered anew since: that run is another enrolment's.
        if (memo?.['enrolmentId'] === enrolmentId) await workflow.getHandle(workflowId, runId).cancel();
      });
    } catch (error) {
      if (codeOf(error) !== 'NOT_FOUND') throw error;
    }
  },
});
