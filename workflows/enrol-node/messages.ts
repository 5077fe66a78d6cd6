/** The input, the state and the result of an enrolment over SSH. What is enrolled, and how it is reached, an operator ordered at the api. */
import { defineQuery } from '@temporalio/workflow';
import type { EnrolmentKind } from '../../domain/enrolment/order.ts';
import { Shape, textLimits } from '../shared/shape.ts';

export interface EnrolNodeInput {
  readonly nodeId: string;
  /** Of the order: `enr-…`. */
  readonly enrolmentId: string;
}

export type EnrolNodePhase =
  | 'opening'
  | 'reaching'
  | 'installing'
  | 'preparing'
  | 'checking'
  | 'starting'
  | 'completing'
  | 'tidying'
  | 'done';

export interface EnrolNodeStatus {
  readonly phase: EnrolNodePhase;
  readonly nodeId: string;
  readonly enrolmentId: string;
  /** What is going on, in words; where it is stuck, what helps. */
  readonly detail: string;
  /** The machine completes by then; null before its key is known. Unix milliseconds. */
  readonly deadlineMs: number | null;
}

export interface EnrolNodeResult {
  readonly nodeId: string;
  readonly enrolmentId: string;
  /** Of the identity that it has now. */
  readonly generation: number;
  /** false: it has its identity, and no session was seen in the minutes after. */
  readonly connected: boolean;
}

export const status = defineQuery<EnrolNodeStatus>('status');

export const enrolmentTypes: Readonly<Record<EnrolmentKind, { readonly type: string; readonly summary: string }>> = Object.freeze({
  enrol: { type: 'enrolNode', summary: 'Enrol a machine over SSH: bcd, a key of its own, its first identity' },
  reenrol: { type: 'reenrolNode', summary: 'Give a node its next identity over SSH, while the one it has serves' },
});

/** @throws ControlError INVALID_INPUT */
export function parseEnrolNode(value: unknown, type: string): EnrolNodeInput {
  const shape = new Shape(type, value, ['nodeId', 'enrolmentId']);
  const message = { nodeId: shape.text('nodeId', textLimits.node), enrolmentId: shape.text('enrolmentId', 64) };
  if (!/^enr-[0-9a-f]{24}$/.test(message.enrolmentId))
    shape.problem('enrolmentId must be the id of an order: better-compute nodes enrol makes one');
  shape.done();
  return message;
}
