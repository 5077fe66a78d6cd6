/**
 * Schedule bc-checkpoint-audit: seals what the audit trail gained since its last checkpoint (AUD-003). No input: it reads what is
 * due; a repeated run finds nothing due.
 */
import { proxyActivities } from '@temporalio/workflow';
import type { AuditSigningActivities } from '../../activities/audit-signing.ts';
import { onSigning } from '../shared/activity-options.ts';
import { versioned } from '../shared/versioning.ts';

const { sealAudit } = proxyActivities<AuditSigningActivities>({
  ...onSigning,
  startToCloseTimeout: '10 minutes',
  scheduleToCloseTimeout: '50 minutes',
});

export async function checkpointAudit(): Promise<{ tenants: number; events: number }> {
  return sealAudit();
}
versioned('AUTO_UPGRADE', checkpointAudit);
