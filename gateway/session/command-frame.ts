/** A command as it goes to its daemon: the stored bytes, never made anew. */
import { BatchApprovalSchema, BatchProofSchema, type Bound, bounds, decodeMessage, SignatureSchema } from '../../proto/index.ts';
import type { ServerFrameInit } from './contract.ts';
import type { QueuedCommand } from './store.ts';

/**
 * undefined for a row that no frame can carry: whoever writes the table can put anything there. Approval and proof of a batch go
 * beside the signed body (QUO-034); the daemon judges both.
 */
export function commandFrame({ body, signature, seq, approval, proof }: QueuedCommand, epoch: number): ServerFrameInit | undefined {
  if (body.length > bounds.commandBody) return undefined;
  const decoded = read(SignatureSchema, signature, 'leafPayload');
  const batchApproval = read(BatchApprovalSchema, approval, 'batchApproval');
  const batchProof = read(BatchProofSchema, proof, 'batchApproval');
  if (decoded === null || decoded === undefined || batchApproval === null || batchProof === null) return undefined;
  return {
    frame: {
      case: 'command',
      value: {
        body,
        signature: decoded,
        seq: BigInt(seq),
        epoch: BigInt(epoch),
        ...(batchApproval === undefined ? {} : { batchApproval }),
        ...(batchProof === undefined ? {} : { batchProof }),
      },
    },
  };
}

type Decodable = typeof SignatureSchema | typeof BatchApprovalSchema | typeof BatchProofSchema;

/** undefined: there is none; null: it does not decode. */
function read<S extends Decodable>(
  schema: S,
  bytes: Uint8Array | null | undefined,
  bound: Bound,
): ReturnType<typeof decodeMessage<S>> | null | undefined {
  if (bytes === null || bytes === undefined) return undefined;
  try {
    return decodeMessage(schema, bytes, bound);
  } catch {
    return null;
  }
}
