/** Requests of machines, from bytes: bounded, decoded, or refused with one error. */
import type { DescMessage, MessageShape } from '@bufbuild/protobuf';
import { ControlError } from '../domain/errors.ts';
import { type Bound, decodeMessage, ProtocolError } from '../proto/index.ts';

/** @throws FRAME_TOO_LARGE, MALFORMED */
export function decodeRequest<D extends DescMessage>(schema: D, bytes: Uint8Array, bound: Bound): MessageShape<D> {
  try {
    return decodeMessage(schema, bytes, bound);
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    const code = cause.code === 'FRAME_TOO_LARGE' ? 'FRAME_TOO_LARGE' : 'MALFORMED';
    throw new ControlError(code, cause.message, { cause, details: { reason: 'request' } });
  }
}
