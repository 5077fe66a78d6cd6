/** Writes down what an operator decides about the exchange of a key, before it takes effect: who, why, and whom it leaves behind (H-08). */
import type { ExchangedKey } from '../domain/rotation/key-exchanges.ts';
import { assertOverrideApproved, type OverrideApproval } from '../services/override-approval.ts';
import { translated } from './failures.ts';
import type { KeyRotationControlPorts } from './key-rotation-ports.ts';
import type { OverrideRow } from './rotation-ports.ts';

export interface RecordKeyOverrideInput extends Omit<OverrideRow, 'at'> {
  readonly rotationId: string;
  readonly key: ExchangedKey;
  readonly leftBehind: readonly string[];
  readonly approvals?: readonly OverrideApproval[];
}

export interface KeyRotationControlActivities {
  recordKeyOverride(input: RecordKeyOverrideInput): Promise<OverrideRow>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export const createKeyRotationControlActivities = ({ overrides, quorum }: KeyRotationControlPorts): KeyRotationControlActivities =>
  translated<KeyRotationControlActivities>({
    async recordKeyOverride({ rotationId, key, kind, subject, actor, reason, leftBehind, approvals = [] }) {
      const approvedBy = await assertOverrideApproved(quorum, { rotationId, kind, subject, reason, approvals });
      return overrides.recordOverride({
        rotationId,
        override: { kind, subject, actor, reason },
        details: { key, approvedBy: [...approvedBy], ...(kind === 'force' ? { processesLeftBehind: [...leftBehind] } : {}) },
      });
    },
  });
