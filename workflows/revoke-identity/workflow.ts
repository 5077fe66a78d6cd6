/**
 * Takes a node's identity away, or the whole node with it: revoke every certificate, wait until no gateway holds a session of the node, write it down.
 * Revoking is one transaction that every gateway's feed picks up; the workflow only proves that the last session is gone.
 */
import { allHandlersFinished, condition, proxyActivities, setCurrentDetails, setHandler, workflowInfo } from '@temporalio/workflow';
import type { IdentityActivities } from '../../activities/identities.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { onControl } from '../shared/activity-options.ts';
import { showPhase } from '../shared/attributes.ts';
import { refusing } from '../shared/failures.ts';
import { versioned } from '../shared/versioning.ts';
import { parseRevokeIdentity, type RevokeIdentityInput, type RevokeIdentityResult, type RevokeIdentityStatus, status } from './messages.ts';

const identities = proxyActivities<IdentityActivities>(onControl);

export async function revokeIdentity(input: RevokeIdentityInput): Promise<RevokeIdentityResult> {
  const { workflowId, firstExecutionRunId } = workflowInfo();
  const { nodeId, actor, reason, retire } = refusing(() => readInput(input, workflowId));
  let current: RevokeIdentityStatus = { phase: 'revoking', nodeId, certificates: null };
  setHandler(status, () => current, { description: 'Phase, and how many certificates were revoked' });
  const enter = (phase: RevokeIdentityStatus['phase'], certificates = current.certificates): void => {
    current = { phase, nodeId, certificates };
    showPhase({ phase, ...(phase === 'waiting-sessions' ? { waitingOn: ['gateways'] } : {}) });
    setCurrentDetails(describe(current, reason));
  };

  enter('revoking');
  const { certificates } = await identities.revokeNode.executeWithOptions(
    { summary: `${retire === true ? 'delete' : 'revoke'} ${nodeId}` },
    [{ nodeId, actor, reason, ...(retire === true ? { retire } : {}) }],
  );
  enter('waiting-sessions', certificates);
  await identities.awaitSessionsClosed.executeWithOptions({ summary: `sessions of ${nodeId}` }, [{ nodeId }]);
  enter('recording');
  await identities.recordRevocation({ nodeId, actor, reason, certificates, key: `${workflowId}/${firstExecutionRunId}` });
  enter('done');
  await condition(allHandlersFinished);
  return { nodeId, certificates };
}
versioned('AUTO_UPGRADE', revokeIdentity);

function readInput(input: unknown, workflowId: string): RevokeIdentityInput {
  const message = parseRevokeIdentity(input);
  const expected = workflowIds.revokeIdentity(message.nodeId);
  if (workflowId !== expected)
    throw new ControlError('INVALID_INPUT', `revoking ${message.nodeId} runs under the workflow id ${expected}, not ${workflowId}`);
  return message;
}

const describe = (current: RevokeIdentityStatus, reason: string): string =>
  [
    `**${current.phase}**: ${current.nodeId} (${reason.slice(0, 200)})`,
    ...(current.certificates === null ? [] : [`- certificates revoked: ${current.certificates}`]),
    ...(current.phase === 'waiting-sessions' ? ['- waiting for the gateways to close its sessions; helps: `better-compute doctor`'] : []),
  ].join('\n');
