/** How the api starts a workflow for an operator: under its fixed id, beside none that runs. */
import type { Client } from '@temporalio/client';
import { taskQueues } from '../temporal.config.ts';
import type { Started } from './ports.ts';
import { calling } from './temporal-errors.ts';

export interface WorkflowOrder {
  readonly workflowId: string;
  readonly input: unknown;
  readonly summary: string;
  /** What its id does not say of it, for whoever asks before anything runs. */
  readonly memo?: Readonly<Record<string, unknown>>;
}

export type StartWorkflow = (type: string, order: WorkflowOrder) => Promise<Started>;

/** What it answers throws CONFLICT while a workflow of that id runs, UNAVAILABLE while Temporal is away. */
export const createStartWorkflow =
  (client: () => Promise<Client>): StartWorkflow =>
  (type, { workflowId, input, summary, memo }) =>
    calling(`workflow ${workflowId}`, async () => {
      const { workflow } = await client();
      const handle = await workflow.start(type, {
        workflowId,
        taskQueue: taskQueues.control,
        args: [input],
        workflowIdConflictPolicy: 'FAIL',
        staticSummary: summary,
        ...(memo === undefined ? {} : { memo }),
      });
      return { workflowId, runId: handle.firstExecutionRunId };
    });
