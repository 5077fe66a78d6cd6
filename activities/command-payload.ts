/** From the JSON an operator types to the payload a command carries: the kind's own message, refused where it does not fit. */
import { create, fromJson, type JsonValue, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { type CommandKind, commandKinds } from '../domain/commands/kinds.ts';
import { ControlError } from '../domain/errors.ts';
import { protocolRegistry } from '../proto/index.ts';

/**
 * @param json proto JSON of the kind's payload message
 * @returns an encoded google.protobuf.Any
 * @throws ControlError INVALID_INPUT naming the message and what does not fit
 */
export function encodePayload(kind: CommandKind, json: Readonly<Record<string, unknown>>): Uint8Array {
  const typeName = commandKinds[kind].payload;
  const schema = protocolRegistry.getMessage(typeName);
  if (schema === undefined) throw new ControlError('INTERNAL', `no message ${typeName} is registered`);
  try {
    const message = fromJson(schema, json as JsonValue);
    return toBinary(AnySchema, create(AnySchema, anyPack(schema, message)));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : 'not readable';
    throw new ControlError('INVALID_INPUT', `payload of ${kind} is not a ${typeName}: ${why}`, {
      details: { reason: 'bad-payload' },
      cause,
    });
  }
}
