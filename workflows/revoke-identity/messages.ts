/** The input and the result of taking a node's identity away. */
import { defineQuery } from '@temporalio/workflow';
import { kindOf, readSigned, Shape, type Signed, textLimits } from '../shared/shape.ts';

export interface RevokeIdentityInput extends Signed {
  readonly nodeId: string;
  /** The node is deleted with its identity; default false. */
  readonly retire?: boolean;
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
  const shape = new Shape('revokeIdentity', value, ['nodeId', 'actor', 'reason', 'retire']);
  const message = { nodeId: shape.text('nodeId', textLimits.node), ...readSigned(shape), ...readRetire(shape) };
  shape.done();
  return message;
}

function readRetire(shape: Shape): { readonly retire?: true } {
  if (!shape.has('retire')) return {};
  const value = shape.get('retire');
  if (typeof value !== 'boolean') shape.problem(`retire must be true or false, got ${kindOf(value)}`);
  return value === true ? { retire: true } : {};
}
