import type { MessageInitShape } from '@bufbuild/protobuf';
import { signJoinResponse } from '../../pki/enroll/index.ts';
import { parseCsr, type Signer } from '../../pki/x509/index.ts';
import {
  decodeMessage,
  type JoinGrantedSchema,
  type JoinRequest,
  JoinRequestSchema,
  type JoinResponseBodySchema,
} from '../../proto/index.ts';
import { nodeChain, sha256, type TestDeployment, trustMessage } from '../harness/deployment.ts';
import type { FakeGateway } from '../harness/fake-gateway.ts';

export interface Lie {
  readonly granted?: MessageInitShape<typeof JoinGrantedSchema>;
  readonly body?: MessageInitShape<typeof JoinResponseBodySchema>;
  readonly signer?: Signer;
  readonly key?: Uint8Array;
}

/** An honest answer of the control plane, except where a lie says otherwise. */
export async function grantJoin(deployment: TestDeployment, request: JoinRequest, lie: Lie = {}): Promise<Uint8Array> {
  const now = Date.now();
  const role = request.role === 'site' || request.role === 'ramdisk' ? request.role : 'node';
  const chain = await nodeChain(deployment, { nodeId: 'node-7', spki: lie.key ?? parseCsr(request.csr).spki, now, role });
  const trust = trustMessage(deployment, { version: 3, roots: [deployment.rootA, deployment.rootB] });
  const granted = { nodeId: 'node-7', siteId: 'site-1', chain, trust, generation: 1n, ...lie.granted };
  const outcome = { case: 'granted' as const, value: granted };
  const body = { nonce: request.nonce, csrSha256: sha256(request.csr), serverTimeMs: BigInt(now), outcome, ...lie.body };
  return signJoinResponse(lie.signer ?? deployment.bundle.joinSigning.signer(), body);
}

export const joinRequestsOf = (gateway: FakeGateway): JoinRequest[] =>
  gateway.joins.map((bytes) => decodeMessage(JoinRequestSchema, bytes, 'joinRequest'));
