/** Schedule bc-reconcile-commands: ends commands past their deadline and heals lost completions. No input. */
import { proxyActivities } from '@temporalio/workflow';
import type { CommandControlActivities } from '../../activities/commands-control.ts';
import { onControl } from '../shared/activity-options.ts';
import { versioned } from '../shared/versioning.ts';

const { reconcile } = proxyActivities<CommandControlActivities>({
  ...onControl,
  startToCloseTimeout: '50 seconds',
  scheduleToCloseTimeout: '5 minutes',
});

export async function reconcileCommands(): Promise<{ expired: number; completionsQueued: number; pruned: number }> {
  return reconcile();
}
versioned('AUTO_UPGRADE', reconcileCommands);
