/** The evidence of a batch on the real database: what it says ran is what ran, also when commands came after it was written. */
import assert from 'node:assert/strict';
import type { RunningBundle } from '../../activities/adapters/bundle-steps.ts';
import { createBatchEvidence } from '../../activities/adapters/quorum-evidence.ts';
import { parseQuorumEvidence } from '../../pki/audit/quorum-evidence.ts';
import { readEvidence } from '../../services/rotations.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNodes, approve, createBatchOf, enqueueAll, publishQuorum, rebootIn, rebootLeaf, releaseAll } from './batch-support.ts';
import { testBundle } from './support.ts';

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
});
