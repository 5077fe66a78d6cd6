/** A control plane that enrols machines over SSH, as a machine sees it: signed health, and then the next identity of one node. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type EnrolmentEvidence, readEnrolmentEvidence } from '../../domain/enrolment/evidence.ts';
import { type ControlPlanePins, encodePinsFile, signJoinResponse } from '../../pki/enroll/index.ts';
import { parseCsr, type Signer } from '../../pki/x509/index.ts';
import type { JoinRequest } from '../../proto/index.ts';
import { joinBundleOf, nodeChain, sha256, type TestDeployment } from '../harness/deployment.ts';
import { scratchFolder } from '../harness/scratch.ts';
import { grantJoin, type Lie } from './join-stage.ts';

export const enrolmentId = 'enr-0a1b2c3d4e5f60718293a4b5';

export function evidenceOf({ attestor, evidence }: JoinRequest): EnrolmentEvidence {
  const read = attestor === 'enrolment' ? readEnrolmentEvidence(evidence) : null;
  if (read === null) throw new Error(`attestor ${attestor} with other evidence than an enrolment's`);
  return read;
}

export interface HealthLie {
  readonly about?: string;
  readonly nonce?: Uint8Array;
  readonly signer?: Signer;
  readonly serverTimeMs?: number;
}

/** The signed word that it is there; honest, except where a lie says otherwise. */
export function sayHealth({ bundle }: TestDeployment, request: JoinRequest, lie: HealthLie = {}): Promise<Uint8Array> {
  const { about = evidenceOf(request).id, nonce = request.nonce, signer = bundle.joinSigning.signer(), serverTimeMs = Date.now() } = lie;
  const value = { retryAfterSeconds: 0, challenge: Buffer.from(about) };
  const body = { nonce, csrSha256: sha256(request.csr), serverTimeMs: BigInt(serverTimeMs), outcome: { case: 'deferral' as const, value } };
  return signJoinResponse(signer, body);
}

/** The next generation of node-1. */
export async function grantNext(deployment: TestDeployment, request: JoinRequest, lie: Lie = {}): Promise<Uint8Array> {
  const now = Date.now();
  const chain = await nodeChain(deployment, { nodeId: 'node-1', spki: parseCsr(request.csr).spki, now });
  return grantJoin(deployment, request, { ...lie, granted: { nodeId: 'node-1', generation: 2n, chain, ...lie.granted } });
}

export function pinsOf(deployment: TestDeployment, gatewayUrl: string): ControlPlanePins {
  const { token: _, ...pins } = joinBundleOf(deployment, gatewayUrl);
  return pins;
}

export async function pinsFile(pins: ControlPlanePins): Promise<string> {
  const path = join(scratchFolder(), 'pins.json');
  await writeFile(path, encodePinsFile(pins));
  return path;
}
