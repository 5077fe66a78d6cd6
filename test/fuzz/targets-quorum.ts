/** What approvers and machines read of a batch: proofs and approvals from the wire, approver sets in a bundle, pages and exported scopes. */
import { createHash, generateKeyPairSync } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { parseBatch, parsePage } from '../../cli/batch/document.ts';
import { operationsOf } from '../../cli/batch/operations.ts';
import { printable, suspicions } from '../../cli/batch/printable.ts';
import { reviewBatch } from '../../cli/batch/review.ts';
import { ControlError } from '../../domain/errors.ts';
import {
  createScope,
  decideApproverSet,
  decodeProof,
  encodeProof,
  signApproval,
  signApproverSet,
  verifyQuorum,
} from '../../pki/quorum/index.ts';
import { buildTrustBundle, noQuorum } from '../../pki/trust/index.ts';
import { kidOf, signerFromPrivateKey } from '../../pki/x509/index.ts';
import { BatchApprovalSchema, bounds, decodeMessage, encodeMessage, NodeRebootSchema, TrustBundleSchema } from '../../proto/index.ts';
import type { Target } from './engine.ts';
import { mutateProtobuf } from './mutate-fields.ts';
import { mutateJson } from './mutate-text.ts';
import { bytesOf, mutatorsOf, now, textOf, trustDomain } from './world.ts';

const leafDigest = new Uint8Array(32).fill(9);
const commandLeaf = { subject: 'node_1', kind: 'node.reboot', payloadSha256: leafDigest };

export async function quorumTargets(): Promise<Target[]> {
  const signer = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
  const quorum = { ...noQuorum, approverKeys: [{ kid: kidOf(signer.spki), spki: signer.spki }], approverThreshold: 1 };
  const scope = createScope('bat_1', [commandLeaf, { ...commandLeaf, subject: 'node_2' }, { ...commandLeaf, subject: 'node_3' }]);
  const index = scope.leaves.findIndex(({ subject }) => subject === 'node_1');
  const proof = encodeProof(scope.proofOf(index));
  const facts = { batchId: 'bat_1', root: scope.root, size: scope.size, notAfterMs: now + 1_000, trustDomain };
  const approval = toBinary(
    BatchApprovalSchema,
    create(BatchApprovalSchema, {
      batchId: 'bat_1',
      scopeRoot: scope.root,
      scopeSize: BigInt(scope.size),
      notAfterMs: BigInt(facts.notAfterMs),
      signatures: [await signApproval(signer, facts)],
    }),
  );
  const offered = {
    ...quorum,
    approverSetEpoch: 2,
    approverSetSignatures: [await signApproverSet(signer, { epoch: 2, quorum, trustDomain })],
  };
  const bundle = encodeMessage(
    TrustBundleSchema,
    buildTrustBundle({ version: 2, trustDomain, roots: [], removed: [], quorum: offered }),
    'trustBundle',
  );
  const decided = {
    proof: { $typeName: 'bettercompute.agent.v1.BatchProof' as const, index: BigInt(index), siblings: [...scope.proofOf(index).siblings] },
  };
  return [
    { name: 'batch-proof', maxBytes: 4_096, seeds: [proof], mutators: mutatorsOf(4_096, mutateProtobuf), run: decodeProof },
    {
      name: 'batch-approval',
      maxBytes: bounds.batchApproval + 1,
      seeds: [approval],
      mutators: mutatorsOf(bounds.batchApproval, mutateProtobuf),
      run: (input) => {
        const read = decodeMessage(BatchApprovalSchema, input, 'batchApproval');
        const verdict = verifyQuorum({ quorum, batchId: 'bat_1', leaf: commandLeaf, approval: read, ...decided, trustDomain, now });
        if (!verdict.ok) throw new ControlError('PERMISSION_DENIED', verdict.detail, { details: { reason: verdict.reason } });
      },
    },
    {
      name: 'approver-set',
      maxBytes: bounds.trustBundle + 1,
      seeds: [bundle],
      mutators: mutatorsOf(bounds.trustBundle, mutateProtobuf),
      run: (input) => decideApproverSet({ quorum, epoch: 1 }, decodeMessage(TrustBundleSchema, input, 'trustBundle'), { trustDomain }),
    },
    ...pageTargets(),
  ];
}

function pageTargets(): Target[] {
  const value = Buffer.from(encodeMessage(NodeRebootSchema, create(NodeRebootSchema, { reason: 'kernel' }), 'leafPayload'));
  const payloadSha256 = createHash('sha256').update(value).digest();
  const scope = createScope('bat_1', [{ subject: 'node_1', kind: 'node.reboot', payloadSha256 }]);
  const leaf = {
    index: 0,
    subject: 'node_1',
    kind: 'node.reboot',
    payloadSha256: payloadSha256.toString('hex'),
    payload: { typeUrl: 'type.googleapis.com/bettercompute.agent.v1.NodeReboot', value: value.toString('base64') },
  };
  const batch = {
    id: 'bat_1',
    state: 'pending',
    reason: 'kernel',
    root: scope.root.toString('hex'),
    size: 1,
    notAfterMs: now + 1_000,
    trustDomain,
    required: 1,
    createdBy: 'ann',
    approvals: [],
  };
  const small = 64 * 1024;
  const json = mutatorsOf(small, mutateJson);
  const read = (input: Uint8Array): unknown => {
    try {
      return JSON.parse(textOf(input));
    } catch (cause) {
      throw new ControlError('INVALID_RESPONSE', 'not JSON', { cause });
    }
  };
  const options = { root: null, expected: null, allowUnbound: true, allowOpaque: true, maxHours: 72, trustDomain: null, now };
  return [
    {
      name: 'scope-page',
      maxBytes: small,
      seeds: [bytesOf(JSON.stringify({ leaves: [leaf], next: null }))],
      mutators: json,
      run: (input) => operationsOf(parsePage(read(input)).leaves),
    },
    {
      name: 'batch-review',
      maxBytes: small,
      seeds: [bytesOf(JSON.stringify({ batch, leaves: [leaf] }))],
      mutators: json,
      run: (input) => {
        const { batch: said, leaves } = (read(input) ?? {}) as { batch?: unknown; leaves?: unknown };
        return reviewBatch({ batch: parseBatch(said, 'bat_1'), leaves: parsePage({ leaves, next: null }).leaves }, options);
      },
    },
    {
      name: 'printable',
      maxBytes: small,
      seeds: [bytesOf('a p\u0430ge \u001b[2J \u202e')],
      mutators: json,
      run: (input) => [printable(textOf(input)), suspicions(textOf(input))],
    },
  ];
}
