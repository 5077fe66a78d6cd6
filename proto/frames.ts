/**
 * Bounded encoders and decoders (BND-002, BND-004, BND-005): the only way bytes become messages. A message is refused
 * by its length before the parser sees it; unknown fields are kept, so a relay loses nothing of a newer peer.
 */
import { create, type DescMessage, fromBinary, type MessageInitShape, type MessageShape, toBinary } from '@bufbuild/protobuf';
import { type Bound, bounds } from './bounds.ts';
import { holdsTooManyFields, maxMessageFields } from './field-count.ts';

export type ProtocolErrorCode = 'FRAME_TOO_LARGE' | 'INVALID_FRAME';

export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
  readonly code: ProtocolErrorCode;
  constructor(code: ProtocolErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

function checkBound(name: string, size: number, bound: Bound): void {
  if (size > bounds[bound]) {
    throw new ProtocolError('FRAME_TOO_LARGE', `${name} of ${size} bytes exceeds the bound ${bound} of ${bounds[bound]}`);
  }
}

/** Of a message that legitimately has more fields than others. */
export interface LongMessage {
  readonly bound: Bound;
  readonly maxFields: number;
}

/** @throws ProtocolError FRAME_TOO_LARGE above the bound, INVALID_FRAME when the bytes do not decode, or hold too many fields */
export function decodeMessage<D extends DescMessage>(schema: D, bytes: Uint8Array, limit: Bound | LongMessage): MessageShape<D> {
  const { bound, maxFields } = typeof limit === 'string' ? { bound: limit, maxFields: maxMessageFields } : limit;
  checkBound(schema.name, bytes.length, bound);
  if (holdsTooManyFields(schema, bytes, maxFields))
    throw new ProtocolError('INVALID_FRAME', `${schema.name} holds more than ${maxFields} fields`);
  try {
    return fromBinary(schema, bytes);
  } catch (cause) {
    throw new ProtocolError('INVALID_FRAME', `${schema.name} does not decode`, { cause });
  }
}

/** @throws ProtocolError FRAME_TOO_LARGE above the bound, INVALID_FRAME when a field has a value its type cannot hold */
export function encodeMessage<D extends DescMessage>(schema: D, value: MessageInitShape<D>, bound: Bound): Uint8Array {
  let bytes: Uint8Array;
  try {
    bytes = toBinary(schema, create(schema, value));
  } catch (cause) {
    throw new ProtocolError('INVALID_FRAME', `${schema.name} does not encode`, { cause });
  }
  checkBound(schema.name, bytes.length, bound);
  return bytes;
}
