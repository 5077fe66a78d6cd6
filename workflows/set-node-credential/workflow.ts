/**
 * Names the secret that a unit of a machine gets, or takes it away (SEC-007): into the node's next desired state, which tells the machine to ask.
 * One activity does it and may be repeated; the workflow is what repeats it until it is done.
 */
import { proxyActivities, setCurrentDetails, setHandler, workflowInfo } from '@temporalio/workflow';
import type { SpecSigningActivities } from '../../activities/spec-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { onSigning } from '../shared/activity-options.ts';
import { showPhase } from '../shared/attributes.ts';
import { refusing } from '../shared/failures.ts';
import { versioned } from '../shared/versioning.ts';
import {
  parseSetNodeCredential,
  type SetNodeCredentialInput,
  type SetNodeCredentialResult,
  type SetNodeCredentialStatus,
  status,
} from './messages.ts';

const { writeNodeCredential } = proxyActivities<SpecSigningActivities>(onSigning);

export async function setNodeCredential(input: SetNodeCredentialInput): Promise<SetNodeCredentialResult> {
  const order = refusing(() => readInput(input, workflowInfo().workflowId));
  const { nodeId, name, ref } = order;
  let current: SetNodeCredentialStatus = { phase: 'writing', nodeId };
  setHandler(status, () => current, { description: 'Phase' });
  const enter = (phase: SetNodeCredentialStatus['phase'], details: string): void => {
    current = { ...current, phase };
    showPhase({ phase });
    setCurrentDetails(`**${phase}**: ${details}`);
  };

  enter('writing', `${name} of ${nodeId}: ${ref ?? 'none'} (${order.reason.slice(0, 200)})`);
  const written = await writeNodeCredential.executeWithOptions({ summary: `${name} of ${nodeId}` }, [order]);
  enter('done', `${name} of ${nodeId} stands in generation ${written.generation}`);
  return written;
}
versioned('AUTO_UPGRADE', setNodeCredential);

function readInput(input: unknown, workflowId: string): SetNodeCredentialInput {
  const message = parseSetNodeCredential(input);
  const expected = workflowIds.setNodeCredential(message.nodeId, message.name);
  if (workflowId !== expected)
    throw new ControlError(
      'INVALID_INPUT',
      `a credential of ${message.nodeId} is set under the workflow id ${expected}, not ${workflowId}`,
    );
  return message;
}
