/** The input and the result of naming a secret for a unit of a machine. */
import { defineQuery } from '@temporalio/workflow';
import { parseSecretReference } from '../../domain/secrets/reference.ts';
import { type SpecCredentialName, specCredentialNames } from '../../domain/secrets/spec-credentials.ts';
import { readSigned, Shape, type Signed, textLimits } from '../shared/shape.ts';

export interface SetNodeCredentialInput extends Signed {
  readonly nodeId: string;
  readonly name: SpecCredentialName;
  /** A reference to a secret; null takes the section out. */
  readonly ref: string | null;
}

export interface SetNodeCredentialStatus {
  readonly phase: 'writing' | 'done';
  readonly nodeId: string;
}

export interface SetNodeCredentialResult {
  /** Of the node's desired state: the first that says so, or a later one. */
  readonly generation: number;
}

export const status = defineQuery<SetNodeCredentialStatus>('status');

export const staticSummary = 'Name the secret that a unit of a machine gets';

/** @throws ControlError INVALID_INPUT */
export function parseSetNodeCredential(value: unknown): SetNodeCredentialInput {
  const shape = new Shape('setNodeCredential', value, ['nodeId', 'name', 'ref', 'actor', 'reason']);
  const nodeId = shape.text('nodeId', textLimits.node);
  const name = shape.oneOf('name', specCredentialNames);
  const said = shape.get('ref');
  const ref = said === null ? null : typeof said === 'string' ? said : '';
  if (ref !== null && parseSecretReference(ref) === undefined)
    shape.problem('ref must be a reference to a secret (secret://…, vault://…#…, env://…), or null to take it away');
  const message = { nodeId, name, ref, ...readSigned(shape) };
  shape.done();
  return message;
}
