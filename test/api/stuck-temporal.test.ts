/** What nobody watches and what does not run, asked of a real Temporal server about real rows: batches without a workflow, schedules that stand still. */
import assert from 'node:assert/strict';
import type { Worker } from '@temporalio/worker';
import type { StuckItem } from '../../api/stuck.ts';
import { createOperatorWorkflows } from '../../api/temporal-workflows.ts';
import { examineTemporal } from '../../cli/doctor/examine-temporal.ts';
import { minute, second } from '../../domain/time.ts';
import { cancelBatch } from '../../services/batches/index.ts';
import { endEnrolment, listEnrolments, orderEnrolment } from '../../services/enrolments/index.ts';
import { listOpenBatches } from '../../services/stuck.ts';
import { scheduleIds, taskQueues, workflowIds } from '../../temporal.config.ts';
import { ensureSchedules } from '../../workers/schedules.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { startTestTemporal, type TestTemporal } from '../harness/temporal.ts';
import { addNodes, createBatchOf, rebootLeaf, start } from '../services/batch-support.ts';
import { trustDomain } from '../services/support.ts';
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

  it('names open enrolments whose workflow never was, was taken away, or is an earlier one’s, and no other', async () => {
    const { workflow } = temporal.client;
    const carry = async (nodeId: string, enrolmentId: string) =>
      workflow.start('enrolNode', {
        taskQueue: taskQueues.control,
        workflowId: workflowIds.enrolment(nodeId),
        args: [{ nodeId, enrolmentId }],
      });
    const order = async (nodeId: string, now: number): Promise<string> =>
      (
        await orderEnrolment(
          used.db,
          { kind: 'enrol', nodeId, siteId: 's', address: '10.0.0.7', hostKey: `SHA256:${'A'.repeat(43)}`, credential: 'file://web' },
          { trustDomain, actor: 'ann', reason: 'new rack', now },
        )
      ).id;
    const orphansAt = async (now: number): Promise<[string, string][]> => {
      const open = await listEnrolments(used.db, { nodeId: null, openOnly: true, limit: 50 });
      const items = await workflowsAt(now).listUnwatchedEnrolments(open);
      return items
        .map(({ subject, waitsFor }): [string, string] => [subject, waitsFor])
        .toSorted(([one], [other]) => one.localeCompare(other));
    };
    const now = Date.now();
    const never = await order('never', now);
    await (await carry('gone', await order('gone', now - minute))).terminate('somebody took it away');
    await carry('carried', await order('carried', now));
    // Of the enrolment before: it ended, and this one's was never started.
    await (await carry('again', 'enr-000000000000000000000000')).terminate('over');
    const again = await order('again', now + minute);
    const ended = await order('ended', now);
    await endEnrolment(used.db, { id: ended, as: 'cancel', reason: 'over', now });
    assert.deepEqual(await orphansAt(now + 2 * minute), [
      ['node/again/identity', `a workflow: none was started for enrolment ${again}`],
      ['node/gone/identity', 'a workflow: its last one ended as TERMINATED'],
      ['node/never/identity', `a workflow: none was started for enrolment ${never}`],
    ]);
    assert.deepEqual(
      (await orphansAt(now + 9 * second)).map(([subject]) => subject),
      ['node/gone/identity'],
      'what was ordered a moment ago is started in a moment',
    );
    // The server lists what runs a moment behind.
    const doctor = async () => (await examineTemporal({ TEMPORAL_ADDRESS: temporal.address })).map(({ message }) => message);
    const lacks = 'no worker polls bc-hosts';
    await eventually('doctor asks for a hosts worker while a machine is enrolled', async () => (await doctor()).includes(lacks));
    await workflow.getHandle(workflowIds.enrolment('carried')).terminate('the test is over');
    await eventually('and not where none is', async () => !(await doctor()).includes(lacks));
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
