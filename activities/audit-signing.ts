/** Sealing the audit trail: one run of the hourly schedule. The database says what is due, so a repeated run seals nothing twice. */
import type { CheckpointMade } from '../services/audit-checkpoints.ts';
import { translated } from './failures.ts';

export interface AuditSigningPorts {
  /** One checkpoint for each tenant that has events behind its last one. */
  readonly audit: { checkpoint(): Promise<readonly CheckpointMade[]> };
}

export interface AuditSigningActivities {
  sealAudit(): Promise<{ tenants: number; events: number }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export const createAuditSigningActivities = ({ audit }: AuditSigningPorts): AuditSigningActivities =>
  translated<AuditSigningActivities>({
    async sealAudit() {
      const made = await audit.checkpoint();
      return { tenants: new Set(made.map(({ tenant }) => tenant)).size, events: made.reduce((sum, { events }) => sum + events, 0) };
    },
  });
