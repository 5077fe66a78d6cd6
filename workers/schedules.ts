/** The schedules, ensured at every start of a control worker: made when absent, brought to this shape when there. */
import { type Client, ScheduleAlreadyRunning, type ScheduleOptions, ScheduleOverlapPolicy } from '@temporalio/client';
import { scheduleIds, taskQueues } from '../temporal.config.ts';

const policies = Object.freeze({ overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: '1 minute' } as const);

const schedule = (
  scheduleId: string,
  workflowType: string,
  row: { every: '1 minute' | '10 minutes' | '1 hour'; summary: string },
): ScheduleOptions => ({
  scheduleId,
  spec: { intervals: [{ every: row.every }] },
  policies,
  action: {
    type: 'startWorkflow',
    workflowType,
    workflowId: scheduleId,
    taskQueue: taskQueues.control,
    args: [],
    staticSummary: row.summary,
  },
});

export const schedules: readonly ScheduleOptions[] = Object.freeze([
  schedule(scheduleIds.resign, 'resignExpiring', { every: '10 minutes', summary: 'Sign again what would outlive its signer' }),
  schedule(scheduleIds.reconcileCommands, 'reconcileCommands', {
    every: '1 minute',
    summary: 'End overdue commands, heal lost completions',
  }),
  schedule(scheduleIds.reconcileBatches, 'reconcileBatches', {
    every: '1 minute',
    summary: 'End batches whose window is over, watch the others',
  }),
  schedule(scheduleIds.reconcileBoots, 'reconcileBoots', {
    every: '1 minute',
    summary: 'Tell boot servers what their machines have become where no run did',
  }),
  schedule(scheduleIds.checkpointAudit, 'checkpointAudit', { every: '1 hour', summary: 'Seal what the audit trail gained' }),
]);

/** A schedule that an operator paused stays paused. */
export async function ensureSchedules(client: Client): Promise<void> {
  for (const options of schedules) {
    try {
      await client.schedule.create(options);
    } catch (error) {
      if (!(error instanceof ScheduleAlreadyRunning)) throw error;
      await client.schedule.getHandle(options.scheduleId).update((previous) => ({
        spec: options.spec,
        action: options.action as Extract<ScheduleOptions['action'], { type: 'startWorkflow' }> & { workflowId: string },
        policies,
        state: previous.state,
      }));
    }
  }
}
