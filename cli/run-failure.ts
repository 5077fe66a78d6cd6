/** Why a workflow that was started through the API ended without doing its work: only Temporal knows, the database has no row of it. */
import { WorkflowFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { fromTemporal, rootFailure } from '../api/temporal-errors.ts';
import { ControlError } from '../domain/errors.ts';
import { connectTemporal } from './temporal.ts';

const goesOn = new Set(['RUNNING', 'PAUSED', 'CONTINUED_AS_NEW', 'COMPLETED']);

/** null while it runs, when it ended well, and when Temporal does not answer. */
export async function findRunFailure(env: NodeJS.ProcessEnv, workflowId: string): Promise<ControlError | null> {
  const session = await connectTemporal(env).catch(() => null);
  if (session === null) return null;
  try {
    const handle = session.client.workflow.getHandle(workflowId);
    const { status } = await handle.describe();
    if (goesOn.has(status.name)) return null;
    await handle.result();
    return null;
  } catch (error) {
    if (!(error instanceof WorkflowFailedError)) return null;
    const cause = rootFailure(error.cause);
    if (cause instanceof ApplicationFailure) return fromTemporal(cause, workflowId);
    return new ControlError(
      'INVALID_STATE',
      `${workflowId} ended before its commands were sent: ${error.cause?.message ?? error.message}`,
      {
        details: { reason: 'run-ended', workflowId, hint: `temporal workflow show --workflow-id ${workflowId}` },
      },
    );
  } finally {
    await session.close();
  }
}
