/** The BatchApproval that goes out beside every command of a batch: who approved what, in the order of their keys. */
import { create, toBinary } from '@bufbuild/protobuf';
import type { ApprovalFacts } from '../../pki/quorum/index.ts';
import { BatchApprovalSchema } from '../../proto/index.ts';

export interface ApproverSignature {
  readonly kid: string;
  readonly sig: Uint8Array;
}

export const encodeApproval = ({ batchId, root, size, notAfterMs }: ApprovalFacts, signatures: readonly ApproverSignature[]): Uint8Array =>
  toBinary(
    BatchApprovalSchema,
    create(BatchApprovalSchema, {
      batchId,
      scopeRoot: root,
      scopeSize: BigInt(size),
      notAfterMs: BigInt(notAfterMs),
      signatures: signatures.map(({ kid, sig }) => ({ kid, sig })),
    }),
  );
