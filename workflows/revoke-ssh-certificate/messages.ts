/** The input and the result of taking a break-glass certificate back. */
import { defineQuery } from '@temporalio/workflow';
import { ControlError } from '../../domain/errors.ts';
import { readSigned, Shape, type Signed, textLimits } from '../shared/shape.ts';

export interface RevokeSshCertificateInput extends Signed {
  /** In decimal digits. */
  readonly serial: string;
}

export interface RevokeSshCertificateStatus {
  readonly phase: 'revoking' | 'done';
  readonly serial: string;
}

export interface RevokeSshCertificateResult {
  readonly nodeId: string;
  /** Of the node's desired state: the first that lists the serial, or a later one. */
  readonly generation: number;
}

export const status = defineQuery<RevokeSshCertificateStatus>('status');

export const staticSummary = 'Take a break-glass certificate back';

/** @throws ControlError INVALID_INPUT */
export function parseRevokeSshCertificate(value: unknown): RevokeSshCertificateInput {
  const shape = new Shape('revokeSshCertificate', value, ['serial', 'actor', 'reason']);
  const message = { serial: shape.text('serial', textLimits.node), ...readSigned(shape) };
  shape.done();
  if (/^[1-9]\d{0,18}$/.test(message.serial)) return message;
  throw new ControlError(
    'INVALID_INPUT',
    `revokeSshCertificate: serial must be a whole number in digits, not ${JSON.stringify(message.serial.slice(0, 40))}`,
  );
}
