/** Schedule bc-resign: signs again what would outlive its signer's certificate (H-05). No input: it reads, compares, acts. */
import { proxyActivities } from '@temporalio/workflow';
import type { CommandSigningActivities } from '../../activities/commands-signing.ts';
import { onSigning } from '../shared/activity-options.ts';
import { versioned } from '../shared/versioning.ts';

const { signExpiringAgain } = proxyActivities<CommandSigningActivities>({
  ...onSigning,
  startToCloseTimeout: '9 minutes',
  scheduleToCloseTimeout: '9 minutes',
  heartbeatTimeout: '1 minute',
});

export async function resignExpiring(): Promise<{ commands: number; specs: number }> {
  return signExpiringAgain();
}
versioned('AUTO_UPGRADE', resignExpiring);
