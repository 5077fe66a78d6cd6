/** What nobody watches and what does not run, asked of a real Temporal server about real rows: batches without a workflow, schedules that stand still. */
import assert from 'node:assert/strict';
import type { Worker } from '@temporalio/worker';
import type { StuckItem } from '../../api/stuck.ts';
import { createOperatorWorkflows } from '../../api/temporal-workflows.ts';
import { second } from '../../domain/time.ts';
import { cancelBatch } from '../../services/batches/index.ts';
import { listOpenBatches } from '../../services/stuck.ts';
import { scheduleIds, taskQueues, workflowIds } from '../../temporal.config.ts';
import { ensureSchedules } from '../../workers/schedules.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { startTestTemporal, type TestTemporal } from '../harness/temporal.ts';
import { addNodes, createBatchOf, rebootLeaf, start } from '../services/batch-support.ts';
import { startBatch } from '../workflows/batch-rig.ts';

describe('what is stuck, by a real server and real rows', function () {
  this.timeout(120_000);
  const used = useDatabase();
  // Its own: schedules act by themselves, and would reach the workers of other tests.
  let temporal: TestTemporal;
  let worker: Worker;
  let polling: Promise<void>;

  before(async () => {
    temporal = await startTestTemporal();
    worker = await temporal.createWorker({ taskQueue: taskQueues.control });
    polling = worker.run();
    await addNodes(used.db, ['n0']);
  });
  after(async () => {
    worker.shutdown();
    await polling;
    await temporal.stop();
  });

  const make = async (now = start): Promise<string> => (await createBatchOf(used.db, [rebootLeaf('n0')], { context: { now } })).batchId;
  const workflowsAt = (now: number) =>
    createOperatorWorkflows(
      async () => temporal.client,
      () => now,
    );
  const unwatched = async (now: number): Promise<Map<string, string>> => {
    const items = await workflowsAt(now).listUnwatched(await listOpenBatches(used.db, 50));
    return new Map(items.map(({ subject, waitsFor }) => [subject, waitsFor]));
  };

  it('names open batches whose workflow never was, was terminated, or failed, and no other', async () => {
    const [never, terminated, failed, watched, ended] = [await make(), await make(), await make(), await make(), await make()];
    await cancelBatch(used.db, { batchId: ended, actor: 'ann', reason: 'not today' }, { now: start });
    await (await startBatch(temporal.client, terminated)).terminate('somebody took it away');
    const refused = await startBatch(temporal.client, failed, [{ batchId: failed, threshold: 0 }]);
    await assert.rejects(refused.result());
    await startBatch(temporal.client, watched);
    const rows = await listOpenBatches(used.db, 50);
    assert.deepEqual(rows.map(({ id }) => id).toSorted(), [never, terminated, failed, watched].toSorted());
    const found = await unwatched(start + 60 * second);
    assert.deepEqual([...found.keys()].toSorted(), [never, terminated, failed].map((id) => `batch/${id}`).toSorted());
    assert.match(found.get(`batch/${never}`) ?? '', /none was started/);
    assert.match(found.get(`batch/${terminated}`) ?? '', /ended as TERMINATED$/);
    assert.match(found.get(`batch/${failed}`) ?? '', /ended as FAILED \(.*threshold/);
  });

  it('gives one that was made a moment ago the time to start, and asks about no more than it was told to', async () => {
    const batchId = await make(start + second);
    const [row] = await listOpenBatches(used.db, 1);
    assert.equal(row?.id, batchId);
    assert.ok(!(await unwatched(row.createdAt + 9 * second)).has(`batch/${batchId}`));
    assert.ok((await unwatched(row.createdAt + 11 * second)).has(`batch/${batchId}`));
    await startBatch(temporal.client, batchId);
    assert.ok(!(await unwatched(row.createdAt + 11 * second)).has(`batch/${batchId}`));
    await temporal.client.workflow.getHandle(workflowIds.approveBatch(batchId)).terminate('the test is over');
  });

  it('names the schedules that are missing, paused with their note, or have no action left, and none that runs', async () => {
    const stopped = async (): Promise<StuckItem[]> =>
      (await workflowsAt(Date.now()).listStuck()).filter(({ subject }) => subject.startsWith('schedule '));
    const ids = Object.values(scheduleIds);
    assert.deepEqual(
      (await stopped()).map(({ subject, waitsFor }) => [subject, waitsFor]),
      ids.map((id) => [`schedule ${id}`, 'a schedule: it is not there']),
    );
    await ensureSchedules(temporal.client);
    assert.deepEqual(await stopped(), []);
    const { schedule } = temporal.client;
    await schedule.getHandle(scheduleIds.resign).pause('change 4711');
    await schedule.getHandle(scheduleIds.checkpointAudit).delete();
    await schedule
      .getHandle(scheduleIds.reconcileBatches)
      .update(({ state, ...rest }) => ({ ...rest, state: { ...state, remainingActions: 0 } }));
    const found = await eventually('three of them', async () => {
      const items = await stopped();
      return items.length === 3 && new Map(items.map((item) => [item.subject, item]));
    });
    assert.match(found.get(`schedule ${scheduleIds.resign}`)?.waitsFor ?? '', /paused \(change 4711\)$/);
    assert.match(found.get(`schedule ${scheduleIds.checkpointAudit}`)?.waitsFor ?? '', /not there/);
    assert.match(found.get(`schedule ${scheduleIds.reconcileBatches}`)?.waitsFor ?? '', /none left/);
    // As `help` says: what an operator paused is theirs to let go on, and one without actions has to be made anew.
    await schedule.getHandle(scheduleIds.reconcileBatches).delete();
    await ensureSchedules(temporal.client);
    assert.deepEqual(
      (await stopped()).map(({ subject }) => subject),
      [`schedule ${scheduleIds.resign}`],
    );
  });
});
