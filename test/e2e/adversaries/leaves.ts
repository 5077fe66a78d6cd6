/** What the batches of this play are about: reboots, each bound to its payload. */
import { create, toBinary } from '@bufbuild/protobuf';
import type { ApprovalFacts } from '../../../pki/quorum/index.ts';
import { NodeRebootSchema } from '../../../proto/index.ts';

/** A batch as it is stored, in the form that approvers sign. */
export interface Held extends ApprovalFacts {
  readonly workflowId: string;
}

export interface Leaf {
  readonly node: string;
  /** Makes the payload, and so the leaf, one of its kind. */
  readonly reason: string;
}

export const payloadOf = (reason: string) => create(NodeRebootSchema, { reason });
export const payloadBytes = (reason: string): Uint8Array => toBinary(NodeRebootSchema, payloadOf(reason));
const payloadType = 'type.googleapis.com/bettercompute.agent.v1.NodeReboot';

export const leafOf = ({ node, reason }: Leaf) => ({
  subject: node,
  kind: 'node.reboot',
  payload: { typeUrl: payloadType, value: Buffer.from(payloadBytes(reason)).toString('base64') },
});
