/**
 * approveBatch against whoever may write to the namespace: forged, foreign, repeated, late and unreadable messages, activities completed
 * by hand, runs started, reset, terminated. None of it releases a command that was not approved, and none twice.
 */
import assert from 'node:assert/strict';
import type { Payload } from '@temporalio/common';
import type { temporal as api } from '@temporalio/proto';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import * as messages from '../../workflows/approve-batch/messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type BatchHandle, runBatchWorkers, startBatch, untilBatch, waitsForApprovals } from './batch-rig.ts';
import { type BatchOptions, BatchWorld } from './batch-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

const until = async (holds: () => boolean | Promise<boolean>): Promise<void> => {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 25));
};

describe('approveBatch: a writer of the namespace', function () {
  this.timeout(60_000);
  const workflows = useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let handle: BatchHandle | undefined;
  let unique = 0;
  let world: BatchWorld;
  let id: string;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    await temporal.client.workflow
      .getHandle(workflowIds.approveBatch(id))
      .terminate('the test is over')
      .catch(() => undefined);
    await workers?.stop();
    [workers, handle] = [undefined, undefined];
  });

  const begin = async (options: BatchOptions = {}): Promise<BatchHandle> => {
    world = new BatchWorld();
    unique += 1;
    id = world.add(`a${unique}-${process.pid}`, options);
    workers = await runBatchWorkers(temporal, world, { activitiesOnly: true });
    handle = await startBatch(temporal.client, id);
    await waitsForApprovals(handle);
    return handle;
  };
  const pendingActivity = async (batch: BatchHandle, type: string): Promise<string> => {
    for (;;) {
      const found = (await batch.describe()).raw.pendingActivities?.find((one) => one.activityType?.name === type)?.activityId;
      if (typeof found === 'string') return found;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  };

  it('forged, foreign, repeated, reordered, late and unreadable signals change nothing', async () => {
    const batch = await begin({ size: 3 });
    const other = world.add(`other-${id}`, { size: 3 });
    const stranger = new BatchWorld();
    stranger.add(id, { size: 3 });
    const good = world.approval(0, id);
    for (const value of [
      null,
      'garbage',
      { kid: good.kid },
      { ...good, sig: 'A'.repeat(86) },
      stranger.approval(0, id),
      world.approval(1, other),
      world.approval(1, id, { size: 2 }),
      world.approval(1, id, { notAfter: 0 }),
      good,
      good,
      { ...good, batchId: other },
    ])
      await batch.signal(messages.approveSignal, value as messages.ApprovalMessage);
    await signalRaw(temporal, batch, {
      name: 'approveSignal',
      payload: { metadata: { encoding: bytes('json/plain') }, data: bytes('{"broken') },
    });
    await signalRaw(temporal, batch, { name: 'approveSignal', payload: { metadata: { encoding: bytes('who/knows') }, data: bytes('x') } });
    await batch.signal('nobodyKnowsThis', 1);
    await batch.signal(messages.cancel, {} as never);
    await batch.signal(messages.reject, 'garbage' as never);
    const status = await untilBatch(batch, ({ approvals }) => approvals.length === 1);
    assert.deepEqual([status.phase, status.approvals[0]?.kid], ['waiting-approvals', good.kid]);
    assert.deepEqual(world.sent, []);
    await batch.signal(messages.approveSignal, world.approval(2, id));
    assert.equal((await batch.result()).outcome, 'finished');
    assert.equal(world.sent.length, 3);
  });

  it('a reject and an approval in one gap: whichever is handled first, nothing goes out that was rejected', async () => {
    const batch = await begin({ size: 2, required: 1 });
    await Promise.all([workers?.stop(), workflows.stop()]);
    await batch.signal(messages.reject, { actor: 'bob', reason: 'wrong rack' });
    await batch.signal(messages.approveSignal, world.approval(0, id));
    await workflows.start();
    workers = await runBatchWorkers(temporal, world, { activitiesOnly: true });
    assert.equal((await batch.result()).outcome, 'rejected');
    assert.deepEqual(world.sent, []);
  });

  it('starting it with keys of his own is refused, and a threshold in the input counts for nothing', async () => {
    await begin({ size: 2 });
    const forged = world.add(`forged-${id}`, { size: 2 });
    const own = await startBatch(temporal.client, forged, [{ batchId: forged, approverKeys: [], threshold: 0 }]);
    await assert.rejects(own.result());
    assert.deepEqual(world.sent, []);
  });

  it('completing the wait by id with a made-up approval releases nothing, and the wait goes on', async () => {
    const batch = await begin({ size: 2 });
    for (const made of [
      { ...(await batch.query(messages.status)), batchId: id },
      {
        batchId: id,
        state: 'approved',
        endedBecause: '',
        reason: '',
        root: 'a1'.repeat(32),
        size: 2,
        required: 0,
        approvals: [],
        notAfter: 0,
        createdBy: '',
        proposedBy: '',
      },
      { state: 'approved' },
      null,
    ]) {
      const activityId = await pendingActivity(batch, 'awaitDecision');
      await temporal.client.activity.complete({ workflowId: batch.workflowId, activityId }, made);
      await until(async () => (await pendingActivity(batch, 'awaitDecision')) !== activityId);
    }
    assert.deepEqual(world.sent, []);
    assert.equal((await batch.query(messages.status)).state, 'pending');
    await batch.executeUpdate(messages.approve, { args: [world.approval(0, id)] });
    await batch.executeUpdate(messages.approve, { args: [world.approval(1, id)] });
    assert.equal((await batch.result()).outcome, 'finished');
    assert.equal(world.sent.length, 2);
  });

  it('completing a wave by id sends nothing more than the plan, and the reconciler takes up what he made the run forget', async () => {
    const batch = await begin({ size: 4, wave: 2 });
    world.ends = null;
    await world.approveByApi(0, id);
    await world.approveByApi(1, id);
    await batch.signal(messages.approvalRecorded);
    await untilBatch(batch, ({ released }) => released === 2);
    const wave = await pendingActivity(batch, 'releaseWave');
    await temporal.client.activity.complete({ workflowId: batch.workflowId, activityId: wave }, { kind: 'done', counts: {} });
    const watching = await pendingActivity(batch, 'awaitBatchEnd');
    await temporal.client.activity.complete(
      { workflowId: batch.workflowId, activityId: watching },
      { facts: null, counts: null, failures: [] },
    );
    await batch.result();
    assert.equal(world.sent.length, 2, 'two are still held');
    world.endAll(id, 'done');
    world.ends = 'done';
    const reconciled = await temporal.client.workflow.execute<() => Promise<{ started: number }>>('reconcileBatches', {
      workflowId: `reconcile-${id}`,
      taskQueue: taskQueues.control,
      args: [],
    });
    assert.equal(reconciled.started, 1);
    await until(() => world.sent.length === 4);
    assert.equal(new Set(world.sent).size, 4);
  });

  it('completing activities by id with garbage wedges nothing', async () => {
    const batch = await begin({ size: 4, wave: 2 });
    world.ends = null;
    await world.approveByApi(0, id);
    await world.approveByApi(1, id);
    await batch.signal(messages.approvalRecorded);
    await untilBatch(batch, ({ released }) => released === 2);
    for (const garbage of [null, 7, {}, { kind: 'waiting', why: 7 }, { kind: 'stopped' }]) {
      const activityId = await pendingActivity(batch, 'releaseWave');
      await temporal.client.activity.complete({ workflowId: batch.workflowId, activityId }, garbage);
      await until(async () => (await pendingActivity(batch, 'releaseWave')) !== activityId);
    }
    assert.equal(world.sent.length, 2);
    const wave = await pendingActivity(batch, 'releaseWave');
    await temporal.client.activity.complete({ workflowId: batch.workflowId, activityId: wave }, { kind: 'done', counts: 'many' });
    const watching = await pendingActivity(batch, 'awaitBatchEnd');
    await temporal.client.activity.complete({ workflowId: batch.workflowId, activityId: watching }, null);
    assert.deepEqual((await batch.result()).failures, []);
  });

  it('a reset to before the release sends nothing twice, and to before the approvals counts none twice', async () => {
    const batch = await begin({ size: 4, wave: 2 });
    await batch.executeUpdate(messages.approve, { args: [world.approval(0, id)] });
    await batch.executeUpdate(messages.approve, { args: [world.approval(1, id)] });
    await batch.result();
    assert.equal(world.sent.length, 4);
    const { events } = await batch.fetchHistory();
    const firstTask = events?.find(
      (event) => event.workflowTaskCompletedEventAttributes !== null && event.workflowTaskCompletedEventAttributes !== undefined,
    );
    await temporal.connection.workflowService.resetWorkflowExecution({
      namespace: 'default',
      workflowExecution: { workflowId: batch.workflowId },
      reason: 'an attack',
      workflowTaskFinishEventId: firstTask?.eventId ?? null,
      requestId: `reset-${id}`,
    });
    const again = temporal.client.workflow.getHandle<() => Promise<messages.BatchResult>>(batch.workflowId);
    const result = await again.result();
    assert.deepEqual([result.outcome, result.approvedBy.length, world.sent.length], ['finished', 2, 4]);
  });

  it('terminating it stops the show, not the batch: the reconciler starts it again, and it ends', async () => {
    const batch = await begin({ size: 2 });
    await batch.executeUpdate(messages.approve, { args: [world.approval(0, id)] });
    await batch.terminate('an attack');
    await world.approveByApi(1, id);
    const run = (): Promise<{ started: number }> =>
      temporal.client.workflow.execute<() => Promise<{ started: number }>>('reconcileBatches', {
        workflowId: `again-${id}`,
        taskQueue: taskQueues.control,
        args: [],
      });
    assert.equal((await run()).started, 1);
    await until(() => world.sent.length === 2);
    assert.deepEqual(world.evidences.length <= 1, true);
  });
});

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A payload that no converter of ours wrote. */
async function signalRaw(
  { connection }: TestTemporal,
  batch: BatchHandle,
  { name, payload }: { name: string; payload: Payload },
): Promise<void> {
  const input: api.api.common.v1.IPayloads = { payloads: [payload] };
  await connection.workflowService.signalWorkflowExecution({
    namespace: 'default',
    workflowExecution: { workflowId: batch.workflowId },
    signalName: name,
    input,
  });
}
