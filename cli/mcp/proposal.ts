/** A proposal as an agent writes it: payloads as JSON, never as bytes, so that what it asked for is what is encoded here. */
import { type DescMessage, fromJson, type JsonValue, toBinary } from '@bufbuild/protobuf';
import { z } from 'zod';
import { maxLeaves } from '../../domain/batch/limits.ts';
import { findCommandKind } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import { protocolRegistry } from '../../proto/index.ts';

const operation = z.strictObject({
  subject: z.string().max(1_024).describe('the machine: a node id'),
  kind: z.string().max(256).describe('the command kind, such as node.reboot'),
  payload: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('the exact payload in proto JSON; without it approvers are asked to allow any payload of this kind'),
});

export const proposalShape = {
  tenantId: z.string().max(128).default('default'),
  reason: z.string().max(4_096).describe('why, for the people who approve: up to 500 characters'),
  scope: z.array(operation).min(1).max(maxLeaves),
  notAfterSeconds: z.int().optional().describe('how long approvals may take and commands may start: 60 to 259200, default 86400'),
  idempotencyKey: z.string().min(1).max(128).describe('the same key proposes one batch, however often it is repeated'),
};

const proposal = z.strictObject(proposalShape);

interface Proposer {
  /** null: the token says who it is. */
  readonly actor: string | null;
  readonly agent: string;
  readonly delegation: string;
}

export const proposalOf = (given: z.output<typeof proposal>, { actor, agent, delegation }: Proposer): unknown => ({
  ...given,
  scope: given.scope.map(leafOf),
  ...(actor === null ? {} : { actor }),
  agent: { name: agent, delegationId: delegation },
});

function leafOf({ subject, kind, payload }: z.output<typeof operation>, index: number): unknown {
  if (payload === undefined) return { subject, kind };
  const spec = findCommandKind(kind);
  const schema = spec === undefined ? undefined : protocolRegistry.getMessage(spec.payload);
  if (spec === undefined || schema === undefined)
    throw new ControlError('INVALID_INPUT', `leaf ${index + 1}: there is no command kind ${JSON.stringify(kind)}`, {
      details: { reason: 'unknown-kind' },
    });
  return {
    subject,
    kind,
    payload: { typeUrl: `type.googleapis.com/${spec.payload}`, value: Buffer.from(encode(schema, payload, index)).toString('base64') },
  };
}

function encode(schema: DescMessage, payload: Readonly<Record<string, unknown>>, index: number): Uint8Array {
  try {
    return toBinary(schema, fromJson(schema, payload as JsonValue));
  } catch (cause) {
    throw new ControlError('INVALID_INPUT', `leaf ${index + 1}: the payload is no ${schema.typeName}: ${(cause as Error).message}`, {
      cause,
      details: { reason: 'payload-malformed' },
    });
  }
}
