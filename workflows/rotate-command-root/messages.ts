/**
 * The messages of a command-root rotation, and their parsers. `rotation start`, the API and the Temporal CLI send the
 * same things: updates answer (and a refused one leaves no trace in the history), their signal twins are for hours in which no
 * worker runs, and a bad signal is only logged.
 */
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import { ControlError } from '../../domain/errors.ts';
import {
  type AbortMessage,
  type Approved,
  type LifecycleStatus,
  parseStartOf,
  readApprovals,
  type StartMessage,
} from '../shared/lifecycle-messages.ts';
import { readSigned, Shape, type Signed, textLimits } from '../shared/shape.ts';

export { pause, resume } from '../shared/lifecycle-handlers.ts';
export {
  type AbortMessage,
  type PauseMessage,
  parseAbort,
  parsePause,
  type StartMessage,
} from '../shared/lifecycle-messages.ts';

/** The gates an operator may force open. The wait before the drop is none of them, on purpose (H-03). */
export const gates = Object.freeze(['processes', 'fleet', 'signers', 'confirm'] as const);
export type Gate = (typeof gates)[number];

export interface ForceMessage extends Signed, Approved {
  readonly phase: Gate;
}

export interface ExcludeMessage extends Signed, Approved {
  readonly node: string;
}

export const phases = Object.freeze([
  'planning',
  'adding',
  'waiting-processes',
  'waiting-fleet',
  'switching',
  'aborting',
  'waiting-signers',
  'resigning',
  'waiting-drop',
  'dropping',
  'confirming',
  'recording',
  'done',
] as const);
export type Phase = (typeof phases)[number];

export interface RotationStatus extends LifecycleStatus {
  readonly phase: Phase;
  readonly outcome: 'dropped' | 'aborted' | null;
  readonly oldRoot: string | null;
  readonly newRoot: string | null;
  /** The trust version the fleet has to hold; null before it is published. */
  readonly trustVersion: number | null;
  readonly dropOpensAt: number | null;
}

export interface RotationResult {
  readonly rotationId: string;
  readonly outcome: 'dropped' | 'aborted';
  readonly oldRoot: string | null;
  readonly newRoot: string | null;
  readonly trustVersion: number | null;
  readonly commandsSignedAgain: number;
  readonly specsSignedAgain: number;
  readonly overrides: number;
}

export const status = defineQuery<RotationStatus>('status');
export const force = defineUpdate<RotationStatus, [ForceMessage]>('force');
export const exclude = defineUpdate<RotationStatus, [ExcludeMessage]>('exclude');
export const abort = defineUpdate<RotationStatus, [AbortMessage]>('abort');
export const forceSignal = defineSignal<[ForceMessage]>('forceSignal');
export const excludeSignal = defineSignal<[ExcludeMessage]>('excludeSignal');
export const abortSignal = defineSignal<[AbortMessage]>('abortSignal');

/** Shown in every list; give it to `client.workflow.start`, or `--static-summary` on the command line. */
export const staticSummary = 'Rotate the command-signing root: add, wait, switch, wait, drop';

const refusedForces: Readonly<Record<string, string>> = Object.freeze({ drop: 'drop', 'waiting-drop': 'drop', dropping: 'drop' });

/** @throws ControlError INVALID_INPUT; INVALID_STATE for the wait before the drop, which no message opens */
export function parseForce(value: unknown): ForceMessage {
  const shape = new Shape('force', value, ['phase', 'actor', 'reason', 'approvals']);
  const phase = shape.get('phase');
  if (typeof phase === 'string' && Object.hasOwn(refusedForces, phase)) {
    throw new ControlError(
      'INVALID_STATE',
      'force does not open the wait before the drop: commands signed under the old root may still be on their way. ' +
        'Whoever answers for it runs: better-compute pki rotate-command-root --stage drop --force --reason <why>',
      { details: { reason: 'drop-not-forceable' } },
    );
  }
  const message = { phase: shape.oneOf('phase', gates), ...readSigned(shape), ...readApprovals(shape) };
  shape.done();
  return message;
}

/** @throws ControlError INVALID_INPUT */
export function parseExclude(value: unknown): ExcludeMessage {
  const shape = new Shape('exclude', value, ['node', 'actor', 'reason', 'approvals']);
  const message = { node: shape.text('node', textLimits.node), ...readSigned(shape), ...readApprovals(shape) };
  shape.done();
  return message;
}

/** @throws ControlError INVALID_INPUT */
export const parseStart = (value: unknown): Required<StartMessage> => parseStartOf('rotateCommandRoot', value);
