/** The evidence of a batch on the real database: what it says ran is what ran, also when commands came after it was written. */
import assert from 'node:assert/strict';
import type { RunningBundle } from '../../activities/adapters/bundle-steps.ts';
import { createBatchEvidence } from '../../activities/adapters/quorum-evidence.ts';
import { parseQuorumEvidence } from '../../pki/audit/quorum-evidence.ts';
import { verifyQuorumEvidence } from '../../pki/audit/verify-quorum-evidence.ts';
import { signApproverSet } from '../../pki/quorum/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { keepApproverSet } from '../../services/approver-sets.ts';
import { readPublishedQuorum } from '../../services/published-quorum.ts';
import { readEvidence } from '../../services/rotations.ts';
import { useDatabase } from '../harness/postgres.ts';
import {
  addNodes,
  approve,
  createApprover,
  createBatchOf,
  enqueueAll,
  publishQuorum,
  quorumOfApprovers,
  rebootIn,
  rebootLeaf,
  releaseAll,
  start,
  three,
  twoOfThree,
} from './batch-support.ts';
import { testBundle, trustDomain } from './support.ts';

describe('batches: evidence', function () {
  this.timeout(30_000);
  const used = useDatabase();

  it('H-17 commands that came after a batch was done are in a document of their own; a repeated step writes none', async () => {
    await publishQuorum(used.db);
    await addNodes(used.db, ['n0', 'n1']);
    const running = { refresh: () => testBundle() } as RunningBundle;
    const evidence = createBatchEvidence({ db: used.db, running });
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n0'), rebootLeaf('n1')]);
    const runs = async (node: string) => {
      await enqueueAll(used.db, [rebootIn(node, { batchId })]);
      await approve(used.db, batchId);
      await releaseAll(used.db, batchId);
      await used.db.query({ text: 'update node_commands set state = 2, finished_at = now() where batch_id = $1 and state < 2' }, [batchId]);
    };
    const documents = async (id = `batch/${batchId}`) =>
      (await readEvidence(used.db, id)).map(({ document }) => {
        const facts = parseQuorumEvidence(new Uint8Array(document));
        return facts.about === 'batch' ? facts.commands : null;
      });
    await runs('n0');
    await evidence.write(batchId);
    await evidence.write(batchId);
    assert.deepEqual(await documents(), [[{ state: 'done', count: 1 }]]);
    await runs('n1');
    await evidence.write(batchId);
    await evidence.write(batchId);
    assert.deepEqual(await documents(), [[{ state: 'done', count: 1 }]], 'what was signed stays');
    assert.deepEqual(await documents(`batch/${batchId}/2`), [[{ state: 'done', count: 2 }]]);
  });

  it('H-17 a change of approvers between the approval and the end leaves evidence that verifies', async () => {
    const [ann, ben, cem] = three as [(typeof three)[0], (typeof three)[0], (typeof three)[0]];
    const bundle = await testBundle();
    const evidence = createBatchEvidence({ db: used.db, running: { refresh: async () => bundle } as unknown as RunningBundle });
    const auditKey = bundle.auditSigning?.signer().spki as Uint8Array;
    const verdictOf = async (batchId: string) => {
      const signed = (await readEvidence(used.db, `batch/${batchId}`)).map(({ document, signature }) => ({ document, signature }));
      const { valid, approvedBy, problems } = verifyQuorumEvidence(signed, { auditKey, pin: spkiPin(auditKey) });
      return { valid, approvedBy: [...approvedBy].sort(), problems };
    };
    const make = async (node: string, quorum = twoOfThree) => {
      const { batchId } = await createBatchOf(used.db, [rebootLeaf(node)], { context: { quorum } });
      await enqueueAll(used.db, [rebootIn(node, { batchId })]);
      return batchId;
    };
    const ends = (batchId: string) =>
      used.db.query({ text: 'update node_commands set state = 2, finished_at = now() where batch_id = $1' }, [batchId]);
    const changed = await make('n0');
    await approve(used.db, changed, [ann, ben]);
    await releaseAll(used.db, changed);
    await ends(changed);
    const next = quorumOfApprovers({ approvers: [cem, createApprover()], approverSetEpoch: 2 });
    const facts = { epoch: 2, quorum: next, trustDomain };
    const signatures = await Promise.all([ann, ben, cem].map(({ signer }) => signApproverSet(signer, facts)));
    await keepApproverSet(used.db, { quorum: { ...next, approverSetSignatures: signatures }, version: null, by: 't', now: start });
    await publishQuorum(used.db, null);
    assert.equal(Number((await readPublishedQuorum(used.db)).approverSetEpoch), 2);
    await evidence.write(changed);
    assert.deepEqual(await verdictOf(changed), { valid: true, approvedBy: [ann.kid, ben.kid].sort(), problems: [] });
  });
});
