/**
 * The messages of the exchange of a key other than a command root, and their parsers. The four workflows understand the same
 * words, and the same as a rotation of the command root does, but for `exclude`: no node is counted here.
 */
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import { ControlError } from '../../domain/errors.ts';
import { type ExchangedKey, type RenewedCa, renewedCas } from '../../domain/rotation/key-exchanges.ts';
import { workflowIds } from '../../temporal.config.ts';
import { type AbortMessage, type Approved, type LifecycleStatus, readApprovals } from '../shared/lifecycle-messages.ts';
import { readSigned, Shape, type Signed } from '../shared/shape.ts';

/** The gates an operator may force open. The waits for a point in time are none of them: what was signed is valid until then. */
export const keyGates = Object.freeze(['processes', 'signers', 'confirm'] as const);
export type KeyGate = (typeof keyGates)[number];

export interface KeyForceMessage extends Signed, Approved {
  readonly phase: KeyGate;
}

export const keyPhases = Object.freeze([
  'planning',
  'adding',
  'waiting-processes',
  'waiting-promote',
  'promoting',
  'aborting',
  'waiting-signers',
  'waiting-retire',
  'retiring',
  'confirming',
  'recording',
  'done',
] as const);
export type KeyPhase = (typeof keyPhases)[number];

export interface KeyRotationStatus extends LifecycleStatus {
  readonly phase: KeyPhase;
  readonly key: ExchangedKey;
  /** Which authority; empty for a key there is one of. */
  readonly subject: RenewedCa | '';
  readonly outcome: 'exchanged' | 'aborted' | null;
  /** Serial or thumbprint of what is replaced, and of what replaces it; null before they are known. */
  readonly from: string | null;
  readonly to: string | null;
  /** The next instant that opens, while it is waited for. */
  readonly opensAt: number | null;
}

export interface KeyRotationResult {
  readonly rotationId: string;
  readonly key: ExchangedKey;
  readonly subject: RenewedCa | '';
  readonly outcome: 'exchanged' | 'aborted';
  readonly from: string | null;
  readonly to: string | null;
  readonly overrides: number;
}

export const status = defineQuery<KeyRotationStatus>('status');
export const force = defineUpdate<KeyRotationStatus, [KeyForceMessage]>('force');
export const abort = defineUpdate<KeyRotationStatus, [AbortMessage]>('abort');
export const forceSignal = defineSignal<[KeyForceMessage]>('forceSignal');
export const abortSignal = defineSignal<[AbortMessage]>('abortSignal');

export interface KeyWorkflow {
  readonly type: 'renewCa' | 'rotateGatewayCertificate' | 'rotateTicketKey' | 'rotateWorkloadKey';
  /** Shown in every list; give it to `client.workflow.start`, or `--static-summary` on the command line. */
  readonly summary: string;
}

export const keyWorkflows: Readonly<Record<ExchangedKey, KeyWorkflow>> = Object.freeze({
  ca: { type: 'renewCa', summary: 'Renew a CA: a new certificate for the same key, then retire the earlier one' },
  gateway: { type: 'rotateGatewayCertificate', summary: 'Give the gateways a new serving certificate with a new key' },
  ticket: { type: 'rotateTicketKey', summary: 'Exchange the exec ticket key: add, promote, retire' },
  workload: { type: 'rotateWorkloadKey', summary: "Exchange the workload issuer's key: publish, promote, retire" },
});

/** The fixed id of each: a second one of the same key is refused. */
export function keyWorkflowId(key: ExchangedKey, subject: RenewedCa | ''): string {
  if (key === 'ca') return workflowIds.renewCa(subject === '' ? 'node' : subject);
  return { gateway: workflowIds.rotateGatewayCertificate, ticket: workflowIds.rotateTicketKey, workload: workflowIds.rotateWorkloadKey }[
    key
  ];
}

/**
 * Which authority a workflow id stands for: a renewal is started without input, so its id is what names it.
 *
 * @throws ControlError INVALID_INPUT under any other id
 */
export function subjectOf(key: ExchangedKey, workflowId: string): RenewedCa | '' {
  const subjects: readonly (RenewedCa | '')[] = key === 'ca' ? renewedCas : [''];
  const found = subjects.find((subject) => keyWorkflowId(key, subject) === workflowId);
  if (found !== undefined) return found;
  const allowed = subjects.map((subject) => keyWorkflowId(key, subject)).join(', ');
  throw new ControlError('INVALID_INPUT', `${keyWorkflows[key].type} runs under the workflow id ${allowed} only, not ${workflowId}`);
}

const timed: ReadonlySet<unknown> = new Set(['promote', 'waiting-promote', 'promoting', 'retire', 'waiting-retire', 'retiring']);

/** @throws ControlError INVALID_INPUT; INVALID_STATE for a wait for a point in time, which no message opens */
export function parseKeyForce(value: unknown): KeyForceMessage {
  const shape = new Shape('force', value, ['phase', 'actor', 'reason', 'approvals']);
  if (timed.has(shape.get('phase'))) {
    throw new ControlError('INVALID_STATE', 'force does not shorten a wait for a point in time: until then others rely on the former key', {
      details: { reason: 'wait-not-forceable' },
    });
  }
  const message = { phase: shape.oneOf('phase', keyGates), ...readSigned(shape), ...readApprovals(shape) };
  shape.done();
  return message;
}
