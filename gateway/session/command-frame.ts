/** A command as it goes to its daemon: the stored bytes, never made anew. */
import { bounds, decodeMessage, type Signature, SignatureSchema } from '../../proto/index.ts';
import type { ServerFrameInit } from './contract.ts';
import type { QueuedCommand } from './store.ts';

/** undefined for a row that no frame can carry: whoever writes the table can put anything there. */
export function commandFrame({ body, signature, seq }: QueuedCommand, epoch: number): ServerFrameInit | undefined {
  const decoded = readSignature(signature);
  if (decoded === undefined || body.length > bounds.commandBody) return undefined;
  return { frame: { case: 'command', value: { body, signature: decoded, seq: BigInt(seq), epoch: BigInt(epoch) } } };
}

function readSignature(bytes: Uint8Array): Signature | undefined {
  try {
    return decodeMessage(SignatureSchema, bytes, 'leafPayload');
  } catch {
    return undefined;
  }
}
