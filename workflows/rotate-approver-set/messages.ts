/** The messages of a change of the approver set: the signed change it is started with, and the words every rotation understands. */
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { ApproverChange, ApproverPlanned } from '../../activities/approver-set-control.ts';
import { type AbortMessage, type Approved, type LifecycleStatus, readApprovals } from '../shared/lifecycle-messages.ts';
import { isRecord, kindOf, readSigned, Shape, type Signed, textLimits } from '../shared/shape.ts';

export interface RotateApproverSetInput {
  readonly actor?: string;
  readonly reason?: string;
  readonly change: ApproverChange;
}

/** The one gate an operator may force. That the api publishes the set is none: nobody could enforce it. */
export const approverGates = Object.freeze(['fleet'] as const);
export type ApproverGate = 'publication' | 'fleet';

export const approverPhases = Object.freeze([
  'planning',
  'storing',
  'waiting-publication',
  'waiting-fleet',
  'aborting',
  'recording',
  'done',
] as const);
export type ApproverPhase = (typeof approverPhases)[number];

export interface ApproverSetStatus extends LifecycleStatus {
  readonly phase: ApproverPhase;
  readonly outcome: 'changed' | 'aborted' | null;
  readonly from: ApproverPlanned['from'] | null;
  readonly to: ApproverPlanned['to'] | null;
  readonly trustVersion: number | null;
}

export interface ApproverSetResult {
  readonly rotationId: string;
  readonly outcome: 'changed' | 'aborted';
  readonly epoch: number;
  readonly trustVersion: number | null;
  readonly overrides: number;
}

export interface ApproverForceMessage extends Signed, Approved {
  readonly phase: 'fleet';
}

export interface ApproverExcludeMessage extends Signed, Approved {
  readonly node: string;
}

export const status = defineQuery<ApproverSetStatus>('status');
export const force = defineUpdate<ApproverSetStatus, [ApproverForceMessage]>('force');
export const exclude = defineUpdate<ApproverSetStatus, [ApproverExcludeMessage]>('exclude');
export const abort = defineUpdate<ApproverSetStatus, [AbortMessage]>('abort');
export const forceSignal = defineSignal<[ApproverForceMessage]>('forceSignal');
export const excludeSignal = defineSignal<[ApproverExcludeMessage]>('excludeSignal');
export const abortSignal = defineSignal<[AbortMessage]>('abortSignal');

export const staticSummary = 'Change who approves: publish a signed approver set, see every machine enforce it';

/** @throws ControlError INVALID_INPUT */
export function parseApproverForce(value: unknown): ApproverForceMessage {
  const shape = new Shape('force', value, ['phase', 'actor', 'reason', 'approvals']);
  const message = { phase: shape.oneOf('phase', approverGates), ...readSigned(shape), ...readApprovals(shape) };
  shape.done();
  return message;
}

/** @throws ControlError INVALID_INPUT */
export function parseApproverExclude(value: unknown): ApproverExcludeMessage {
  const shape = new Shape('exclude', value, ['node', 'actor', 'reason', 'approvals']);
  const message = { node: shape.text('node', textLimits.node), ...readSigned(shape), ...readApprovals(shape) };
  shape.done();
  return message;
}

/** Keys a set can have at most; a start with more is refused before it costs anything. */
const mostKeys = 64;

/** Shapes only: whether it is a set, and who signed it, is judged by the activity. @throws ControlError INVALID_INPUT */
export function parseRotateApproverSet(value: unknown): Required<RotateApproverSetInput> {
  const shape = new Shape('rotateApproverSet', value, ['actor', 'reason', 'change']);
  const message = {
    actor: shape.has('actor') ? shape.text('actor', textLimits.actor) : '',
    reason: shape.has('reason') ? shape.text('reason', textLimits.reason) : '',
    change: readChange(shape.get('change')),
  };
  shape.done();
  return message;
}

/** @throws ControlError INVALID_INPUT naming every field */
export function readChange(value: unknown): ApproverChange {
  const shape = new Shape('change', value, ['epoch', 'approvers', 'threshold', 'tiers', 'unbatchedPerHour', 'signatures']);
  const whole = (name: string, fallback?: number): number => {
    const given = shape.get(name) ?? fallback;
    if (typeof given === 'number' && Number.isSafeInteger(given) && given >= 0) return given;
    shape.problem(`${name} must be a whole number, got ${kindOf(given)}`);
    return 0;
  };
  const list = <T>(name: string, read: (one: unknown) => T | null): T[] => {
    const given = shape.get(name) ?? [];
    const items = Array.isArray(given) && given.length <= mostKeys ? given.map((one: unknown) => read(one)) : [null];
    if (items.includes(null)) shape.problem(`${name} must be a list of at most ${mostKeys} that fit, got ${kindOf(given)}`);
    return items.filter((item): item is NonNullable<typeof item> => item !== null) as T[];
  };
  const change: ApproverChange = {
    epoch: whole('epoch'),
    approvers: list('approvers', (one) => (typeof one === 'string' && one.length > 0 && one.length <= 256 ? one : null)),
    threshold: whole('threshold'),
    tiers: list('tiers', readTier),
    unbatchedPerHour: whole('unbatchedPerHour', 0),
    signatures: list('signatures', readSignature),
  };
  shape.done();
  return change;
}

function readTier(one: unknown): ApproverChange['tiers'][number] | null {
  const { maxScopeSize, threshold } = isRecord(one) ? one : {};
  return Number.isSafeInteger(maxScopeSize) && Number.isSafeInteger(threshold)
    ? { maxScopeSize: maxScopeSize as number, threshold: threshold as number }
    : null;
}

function readSignature(one: unknown): ApproverChange['signatures'][number] | null {
  const { kid, sig } = isRecord(one) ? one : {};
  return typeof kid === 'string' && typeof sig === 'string' && kid.length === 64 && sig.length === 86 ? { kid, sig } : null;
}
