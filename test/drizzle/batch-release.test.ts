import assert from 'node:assert/strict';
import { type Release, readHeld, releaseHeld } from '../../drizzle/queries/batches.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNodes, approve, createBatchOf, enqueueAll, publishQuorum, rebootIn, rebootLeaf, start } from '../services/batch-support.ts';
import { sha256, testBundle } from '../services/support.ts';

describe('the move of held commands', () => {
  const used = useDatabase({ max: 10 });
  before(async () => {
    await publishQuorum(used.db);
    await addNodes(used.db, ['r0', 'r1']);
  });

  it('BAT-062 a release that waited for another one of the same commands moves none of them again', async () => {
    const nodes = ['r0', 'r1'];
    const { batchId } = await createBatchOf(
      used.db,
      nodes.map((id) => rebootLeaf(id)),
    );
    await enqueueAll(
      used.db,
      nodes.map((id) => rebootIn(id, { batchId })),
    );
    await approve(used.db, batchId);
    const held = await readHeld(used.db, { batchId, from: 0, to: 2 });
    const releaseOf = async (body: string): Promise<Release> => ({
      batchId,
      commands: held.map(({ id, nodeId, generation }) => ({
        id,
        nodeId,
        generation: generation ?? 0,
        body: Buffer.from(body),
        bodySha256: sha256(Buffer.from(body)),
        signature: Buffer.from('signature'),
      })),
      signerRoot: (await testBundle()).commandRoots.signing,
      signerNotAfter: start + 3_600_000,
      deadline: start + 3_600_000,
    });
    const [one, two] = [await releaseOf('first'), await releaseOf('second')];
    let late: Promise<{ id: string }[]> | undefined;
    const first = await used.db.transaction(async (tx) => {
      const moved = await releaseHeld(tx, one);
      // It has its snapshot, from before the first one is committed, and waits for the logs that the first one holds.
      late = used.db.transaction((other) => releaseHeld(other, two));
      await eventually('the second release waits for the first', async () => {
        const waiting = { text: `select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()` };
        return (await used.db.query(waiting)).length > 0;
      });
      return moved;
    });
    assert.equal(first.length, 2);
    assert.deepEqual(await late, []);
    const rows = await used.db.query<{ body: Buffer; seq: number }>(
      { text: 'select body, seq from node_commands where batch_id = $1 order by id' },
      [batchId],
    );
    assert.deepEqual(
      rows.map(({ body, seq }) => [body.toString(), seq > 0]),
      [
        ['first', true],
        ['first', true],
      ],
    );
  });
});
