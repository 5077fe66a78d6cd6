/**
 * Schedules that do not run: paused, emptied or deleted, by an operator who forgot or by whoever else may write to the namespace. What they
 * would have started is then missing without a trace: ends of batches, workflows that were taken away, commands signed again.
 */
import { type Client, type ScheduleDescription, ScheduleNotFoundError } from '@temporalio/client';
import { scheduleIds } from '../temporal.config.ts';
import type { StuckItem } from './stuck.ts';

export async function listStoppedSchedules(client: Client): Promise<StuckItem[]> {
  const items = await Promise.all(
    Object.values(scheduleIds).map(async (id) => {
      try {
        return stuckSchedule(id, (await client.schedule.getHandle(id).describe()).state);
      } catch (error) {
        if (!(error instanceof ScheduleNotFoundError)) throw error;
        return stuckSchedule(id, null);
      }
    }),
  );
  return items.flatMap((item) => item ?? []);
}

export type ScheduleState = Pick<ScheduleDescription['state'], 'paused' | 'note' | 'remainingActions'>;

/** @param state null: there is none of that id. @returns null: it runs */
export function stuckSchedule(id: string, state: ScheduleState | null): StuckItem | null {
  const item = (waitsFor: string, help: string): StuckItem => ({
    kind: 'workflow',
    subject: `schedule ${id}`,
    since: null,
    waitsFor,
    help,
  });
  if (state === null) return item('a schedule: it is not there', 'restart a control worker, which makes it');
  const note = state.note === undefined || state.note === '' ? '' : ` (${state.note})`;
  const toggle = `temporal schedule toggle --schedule-id ${id} --unpause --reason <why>`;
  if (state.paused) return item(`someone to let it go on: it is paused${note}`, toggle);
  if (state.remainingActions !== 0) return null;
  return item(
    'actions: it has none left to take',
    `temporal schedule delete --schedule-id ${id}, then restart a control worker, which makes it`,
  );
}
