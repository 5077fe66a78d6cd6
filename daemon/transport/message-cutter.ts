/** Cuts what a gateway sends into messages, with the daemon's words for what is none. */
import { ControlError } from '../../domain/errors.ts';
import { MessageReader, type PrefixFault } from '../../proto/index.ts';

export interface MessageCutter {
  /** The stream stopped in the middle of a message. */
  readonly isInMessage: boolean;
  /** @throws FRAME_TOO_LARGE above the bound, UNSUPPORTED for a compressed message; the stream must not be read on then */
  push(chunk: Uint8Array): Uint8Array[];
}

export function createMessageCutter(maxBytes: number): MessageCutter {
  const reader = new MessageReader(maxBytes, errorOf);
  return {
    get isInMessage() {
      return reader.isInMessage;
    },
    push(chunk) {
      const messages: Uint8Array[] = [];
      reader.push(chunk, { onMessage: (message) => void messages.push(message) });
      return messages;
    },
  };
}

function errorOf(fault: PrefixFault): ControlError {
  const details = { reason: fault.reason };
  if (fault.reason === 'compressed') return new ControlError('UNSUPPORTED', 'the gateway sent a compressed message', { details });
  return new ControlError('FRAME_TOO_LARGE', `the gateway sent a message of ${fault.length} bytes, more than ${fault.maxBytes}`, {
    details,
  });
}
