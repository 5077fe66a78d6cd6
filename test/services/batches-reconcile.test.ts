/** Who is looked at by a reconciler that looks at a few, and what a pending batch says when its approvers have changed. */
import assert from 'node:assert/strict';
import { createBatches } from '../../activities/adapters/batches.ts';
import { readBatch, recordApproval } from '../../services/batches/index.ts';
import { quorumOfApprovers } from '../harness/approvers.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNodes, approvalOf, createBatchOf, forceQuorum, publishQuorum, rebootLeaf, start, three } from './batch-support.ts';
import { trustDomain } from './support.ts';

describe('batches: what a reconciler and a reader see', function () {
  this.timeout(30_000);
  const used = useDatabase();
  before(async () => {
    await publishQuorum(used.db);
    await addNodes(used.db, ['n0', 'n1']);
  });

  it('every open batch has its turn, however many wait before it', async () => {
    const ids = new Set<string>();
    for (let at = 0; at < 12; at++) ids.add((await createBatchOf(used.db, [rebootLeaf('n0')])).batchId);
    const batches = createBatches({ db: used.db, trustDomain: () => trustDomain });
    const seen = new Set<string>();
    for (let run = 0; run < 200 && seen.size < ids.size; run++) {
      const page = await batches.unfinished(3);
      assert.equal(new Set(page).size, 3);
      for (const id of page) seen.add(id);
    }
    assert.deepEqual([...seen].sort(), [...ids].sort());
    assert.deepEqual([...(await batches.unfinished(100))].sort(), [...ids].sort(), 'each once where all have room');
  });

  it('A-PKI-46 a pending batch shows the approvals that count now, and how many the published set asks for', async () => {
    const [ann, ben, cem] = three as [(typeof three)[0], (typeof three)[0], (typeof three)[0]];
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n0')]);
    const record = async (by: typeof ann) => {
      const signature = await approvalOf(used.db, batchId, by);
      return recordApproval(used.db, { batchId, signature }, { now: start, trustDomain });
    };
    const shown = async () => {
      const { state, approvals, required } = await readBatch(used.db, batchId, { now: start });
      return [state, approvals.map(({ kid }) => kid), required];
    };
    await record(ann);
    assert.deepEqual(await shown(), ['pending', [ann.kid], 2]);
    await forceQuorum(used.db, quorumOfApprovers({ approvers: [ben, cem], approverSetEpoch: 2 }));
    assert.deepEqual(await shown(), ['pending', [], 2]);
    await record(ben);
    assert.deepEqual(await shown(), ['pending', [ben.kid], 2], 'two are stored, one counts');
    await forceQuorum(used.db, { ...quorumOfApprovers({ approvers: [ann, ben, cem], approverSetEpoch: 3 }), approverThreshold: 3 });
    assert.deepEqual(await shown(), ['pending', [ann.kid, ben.kid].sort(), 3]);
    await record(cem);
    assert.equal((await shown())[0], 'approved');
  });
});
