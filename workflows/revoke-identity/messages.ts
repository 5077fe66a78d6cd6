/** The input and the result of taking a node's identity away. */
import { defineQuery } from '@temporalio/workflow';
import { readSigned, Shape, type Signed, textLimits } from '../shared/shape.ts';

export interface RevokeIdentityInput extends Signed {
  readonly nodeId: string;
}

export interface RevokeIdentityStatus {
  readonly phase: 'revoking' | 'waiting-sessions' | 'recording' | 'done';
  readonly nodeId: string;
  readonly certificates: number | null;
}

export interface RevokeIdentityResult {
  readonly nodeId: string;
  readonly certificates: number;
}

export const status = defineQuery<RevokeIdentityStatus>('status');

export const staticSummary = "Revoke a node's identity and see its sessions closed";

/** @throws ControlError INVALID_INPUT */
export function parseRevokeIdentity(value: unknown): RevokeIdentityInput {
  const shape = new Shape('revokeIdentity', value, ['nodeId', 'actor', 'reason']);
  const message = { nodeId: shape.text('nodeId', textLimits.node), ...readSigned(shape) };
  shape.done();
  return message;
}
