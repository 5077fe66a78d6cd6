/**
 * Takes a break-glass certificate back (SSH-006): the serial into the list of its node, the list into the node's next desired state.
 * One activity does both and may be repeated; the workflow is what repeats it until it is done.
 */
import { proxyActivities, setCurrentDetails, setHandler, workflowInfo } from '@temporalio/workflow';
import type { SshSigningActivities } from '../../activities/ssh-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { onSigning } from '../shared/activity-options.ts';
import { showPhase } from '../shared/attributes.ts';
import { refusing } from '../shared/failures.ts';
import { versioned } from '../shared/versioning.ts';
import {
  parseRevokeSshCertificate,
  type RevokeSshCertificateInput,
  type RevokeSshCertificateResult,
  type RevokeSshCertificateStatus,
  status,
} from './messages.ts';

const { revokeSshCert } = proxyActivities<SshSigningActivities>(onSigning);

export async function revokeSshCertificate(input: RevokeSshCertificateInput): Promise<RevokeSshCertificateResult> {
  const order = refusing(() => readInput(input, workflowInfo().workflowId));
  let current: RevokeSshCertificateStatus = { phase: 'revoking', serial: order.serial };
  setHandler(status, () => current, { description: 'Phase' });
  const enter = (phase: RevokeSshCertificateStatus['phase'], details: string): void => {
    current = { ...current, phase };
    showPhase({ phase });
    setCurrentDetails(`**${phase}**: ${details}`);
  };

  enter('revoking', `serial ${order.serial} (${order.reason.slice(0, 200)})`);
  const revoked = await revokeSshCert.executeWithOptions({ summary: `serial ${order.serial}` }, [order]);
  enter('done', `serial ${order.serial} stands in generation ${revoked.generation} of ${revoked.nodeId}`);
  return revoked;
}
versioned('AUTO_UPGRADE', revokeSshCertificate);

function readInput(input: unknown, workflowId: string): RevokeSshCertificateInput {
  const message = parseRevokeSshCertificate(input);
  const expected = workflowIds.revokeSshCertificate(message.serial);
  if (workflowId !== expected)
    throw new ControlError('INVALID_INPUT', `taking ${message.serial} back runs under the workflow id ${expected}, not ${workflowId}`);
  return message;
}
