/** Approvers of a test deployment: real keys, real scopes, real signatures; and the twists that an adversary gives them. */
import { generateKeyPairSync } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { hour } from '../../domain/time.ts';
import { createScope, type Scope, type ScopeLeaf, signApproval, signApproverSet } from '../../pki/quorum/index.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { kidOf, type Signer, signerFromPrivateKey } from '../../pki/x509/index.ts';
import {
  type BatchApproval,
  BatchApprovalSchema,
  type BatchProof,
  BatchProofSchema,
  type Command,
  NodeRebootSchema,
  type Signature,
} from '../../proto/index.ts';
import { type CommandInit, commandOf, sha256, type TestDeployment } from './deployment.ts';

export interface Approver {
  readonly kid: string;
  readonly signer: Signer;
}

export function createApprover(): Approver {
  const signer = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
  return { kid: kidOf(signer.spki), signer };
}

export interface QuorumInit extends Partial<Omit<QuorumFields, 'approverKeys'>> {
  readonly approvers: readonly Approver[];
}

/** Two of them must sign, unless it says otherwise. */
export const quorumOfApprovers = ({ approvers, ...over }: QuorumInit): QuorumFields => ({
  ...noQuorum,
  approverKeys: approvers.map(({ kid, signer }) => ({ kid, spki: signer.spki })),
  approverThreshold: 2,
  approverSetEpoch: 1,
  ...over,
});

/** A set with the signatures of some approvers under it and its epoch. */
export async function signedSet(quorum: QuorumFields, by: readonly Approver[], trustDomain: string): Promise<QuorumFields> {
  const facts = { epoch: Number(quorum.approverSetEpoch), quorum, trustDomain };
  return { ...quorum, approverSetSignatures: await Promise.all(by.map(({ signer }) => signApproverSet(signer, facts))) };
}

export interface TestBatch {
  readonly batchId: string;
  readonly scope: Scope;
  readonly notAfterMs: number;
  readonly approval: BatchApproval;
  proofAt(index: number): BatchProof;
  /** Of the leaf with this subject. */
  proofOf(subject: string): BatchProof;
}

export interface BatchInit {
  readonly batchId?: string;
  readonly leaves?: readonly ScopeLeaf[];
  readonly by: readonly Approver[];
  readonly notAfterMs?: number;
  readonly trustDomain?: string;
}

export const reboot = (subject: string, payloadSha256: Uint8Array = new Uint8Array()): ScopeLeaf => ({
  subject,
  kind: 'node.reboot',
  payloadSha256,
});

/** The digest of a reboot's payload, for a bound leaf. */
export const rebootDigest = (delaySeconds = 0): Buffer => sha256(toBinary(NodeRebootSchema, create(NodeRebootSchema, { delaySeconds })));

export async function batchOf(deployment: TestDeployment, init: BatchInit): Promise<TestBatch> {
  const { batchId = 'batch-1', leaves = [reboot('node-1')], notAfterMs = Date.now() + hour, trustDomain = deployment.trustDomain } = init;
  const scope = createScope(batchId, leaves);
  const facts = { batchId, root: scope.root, size: scope.size, notAfterMs, trustDomain };
  const signatures: Signature[] = await Promise.all(init.by.map(({ signer }) => signApproval(signer, facts)));
  const approval = create(BatchApprovalSchema, {
    batchId,
    scopeRoot: scope.root,
    scopeSize: BigInt(scope.size),
    notAfterMs: BigInt(notAfterMs),
    signatures,
  });
  const proofAt = (index: number): BatchProof => {
    const { siblings } = scope.proofOf(index);
    return create(BatchProofSchema, { index: BigInt(index), siblings: [...siblings] });
  };
  const proofOf = (subject: string): BatchProof => proofAt(scope.leaves.findIndex((leaf) => leaf.subject === subject));
  return { batchId, scope, notAfterMs, approval, proofAt, proofOf };
}

/** A reboot of node-1 that a worker signed into the batch, with the batch's approval and its own proof. */
export async function memberOf(deployment: TestDeployment, batch: TestBatch, init: CommandInit = {}): Promise<Command> {
  const command = await commandOf(deployment, { kind: 'node.reboot', ...init, body: { batchId: batch.batchId, ...init.body } });
  return Object.assign(command, { batchApproval: batch.approval, batchProof: batch.proofOf(init.nodeId ?? 'node-1') });
}

/** The order of P-256. */
const order = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

/** The other signature of the same key over the same bytes: (r, n - s). */
export function malleated(signature: Signature): Signature {
  const sig = Buffer.from(signature.sig);
  const s = BigInt(`0x${sig.subarray(32).toString('hex')}`);
  sig.write((order - s).toString(16).padStart(64, '0'), 32, 'hex');
  return { ...signature, sig };
}
