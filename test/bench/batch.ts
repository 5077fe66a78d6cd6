/**
 * A batch of 50,000 operations: its tree with every proof, against bare hashing of the same bytes to digests; and a machine's verdict on
 * one command of it, against the raw ECDSA verifications and hashes that it needs.
 */
import { generateKeyPairSync } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { approvalParts } from '../../pki/quorum/approval.ts';
import {
  createScope,
  encodeProof,
  maxLeaves,
  quorumOf,
  rootOfScope,
  type ScopeLeaf,
  signApproval,
  verifyQuorum,
} from '../../pki/quorum/index.ts';
import { buildTrustBundle, noQuorum } from '../../pki/trust/index.ts';
import { kidOf, publicKeyOf, signerFromPrivateKey } from '../../pki/x509/index.ts';
import { verifyRaw } from '../../pki/x509/signature.ts';
import { BatchApprovalSchema, BatchProofSchema, decodeMessage, signingInput } from '../../proto/index.ts';
import type { Figure } from './main.ts';
import { bareHashing, digest, leafInput, pairOfHashes, rebootsOfAll } from './scope-leaves.ts';
import { inTurns } from './turns.ts';

const treeGoal = 2;
const verdictGoal = 1.3;
const batchId = 'bat_bench';
const trustDomain = 'bench.example';

export async function figure(): Promise<Figure> {
  const leaves = rebootsOfAll();
  const bare = bareHashing(batchId, leaves);
  const ours = (): void => {
    const scope = createScope(batchId, leaves);
    for (let i = 0; i < scope.size; i += 1) scope.proofOf(i);
  };
  const few = { perRound: 1, rounds: 7, warmUps: 2 };
  const tree = await inTurns({ ours, bare, ...few });
  const recomputed = await inTurns({ ours: () => rootOfScope(batchId, leaves), bare, ...few });
  const verdict = await measureVerdict(leaves);
  return {
    figure: 'batch',
    ratio: tree.timeRatio,
    goal: `≤ ${treeGoal}; verdict ≤ ${verdictGoal}`,
    holds: tree.timeRatio <= treeGoal && verdict.timeRatio <= verdictGoal,
    detail: { leaves: maxLeaves, treeAndProofs: tree, rootAlone: recomputed, verdict },
  };
}

/** Two of three approvers over the whole scope; sixteen hashes lead to its root. */
async function measureVerdict(leaves: readonly ScopeLeaf[]): ReturnType<typeof inTurns> {
  const signers = Array.from({ length: 3 }, () => signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey));
  const set = {
    ...noQuorum,
    approverKeys: signers.map(({ spki }) => ({ kid: kidOf(spki), spki })),
    approverThreshold: 2,
    approverSetEpoch: 1,
  };
  // As a daemon holds it.
  const quorum = quorumOf(buildTrustBundle({ version: 1, trustDomain, roots: [], removed: [], quorum: set }));
  const scope = createScope(batchId, leaves);
  const now = Date.now();
  const facts = { batchId, root: scope.root, size: scope.size, notAfterMs: now + 3_600_000, trustDomain };
  const signatures = await Promise.all(signers.slice(0, 2).map((signer) => signApproval(signer, facts)));
  const approval = create(BatchApprovalSchema, {
    batchId,
    scopeRoot: scope.root,
    scopeSize: BigInt(scope.size),
    notAfterMs: BigInt(facts.notAfterMs),
    signatures,
  });
  const [leaf] = scope.leaves;
  if (leaf === undefined) throw new Error('the scope has leaves');
  const path = scope.proofOf(0);
  const proof = decodeMessage(BatchProofSchema, encodeProof(path), 'batchApproval');
  const input = signingInput('batch-approval', approvalParts(facts));
  const keys = signers.map(({ spki }) => publicKeyOf(spki));
  const hashed = leafInput(batchId, leaf);
  return inTurns({
    ours: () => {
      if (!verifyQuorum({ quorum, batchId, leaf, approval, proof, trustDomain, now }).ok) throw new Error('the approval holds');
    },
    bare: () => {
      digest(hashed);
      for (const _ of path.siblings) digest(pairOfHashes);
      signatures.forEach(({ sig }, at) => verifyRaw(keys[at] as (typeof keys)[number], input, sig));
    },
    perRound: 300,
  });
}
