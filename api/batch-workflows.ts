/**
 * The workflow of a batch as the api uses it: started behind the transaction that made the batch, told when an approval was recorded.
 * Both may be lost: `bc-reconcile-batches` starts what is missing, and the workflow looks at the database by itself.
 */
import { type Client, WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { taskQueues, workflowIds } from '../temporal.config.ts';
import { approvalRecorded, staticSummary } from '../workflows/approve-batch/messages.ts';

export interface BatchWorkflows {
  /** A second start of the same batch changes nothing. */
  start(batchId: string): Promise<void>;
  nudge(batchId: string): Promise<void>;
}

export const createBatchWorkflows = (client: () => Promise<Client>): BatchWorkflows => ({
  async start(batchId) {
    const { workflow } = await client();
    try {
      await workflow.start('approveBatch', {
        workflowId: workflowIds.approveBatch(batchId),
        taskQueue: taskQueues.control,
        args: [{ batchId }],
        workflowIdReusePolicy: 'REJECT_DUPLICATE',
        workflowIdConflictPolicy: 'FAIL',
        staticSummary,
      });
    } catch (error) {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    }
  },
  async nudge(batchId) {
    const { workflow } = await client();
    await workflow.getHandle(workflowIds.approveBatch(batchId)).signal(approvalRecorded);
  },
});
