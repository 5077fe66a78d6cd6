/** approveBatch: what it costs, and what it survives. */
import assert from 'node:assert/strict';
import { rangeSize } from '../../activities/batches-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import * as messages from '../../workflows/approve-batch/messages.ts';
import { sharedTemporal, startTestTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type BatchHandle, runBatchWorkers, startBatch, waitsForApprovals } from './batch-rig.ts';
import { type BatchOptions, BatchWorld } from './batch-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

describe('approveBatch: size and faults', function () {
  this.timeout(90_000);
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
    await handle?.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    [workers, handle] = [undefined, undefined];
  });

  const begin = async (options: BatchOptions = {}): Promise<BatchHandle> => {
    world = new BatchWorld();
    unique += 1;
    id = world.add(`s${unique}-${process.pid}`, options);
    workers = await runBatchWorkers(temporal, world, { activitiesOnly: true });
    handle = await startBatch(temporal.client, id);
    await waitsForApprovals(handle);
    return handle;
  };
  const approveAll = async (batch: BatchHandle): Promise<void> => {
    await batch.executeUpdate(messages.approve, { args: [world.approval(0, id)] });
    await batch.executeUpdate(messages.approve, { args: [world.approval(1, id)] });
  };
  const eventsOf = async (batch: BatchHandle): Promise<number> => (await batch.fetchHistory()).events?.length ?? 0;

  it('H-18 50,000 commands in 100 waves cost at most 700 events, in ranges between which it is heard of', async () => {
    const batch = await begin({ size: 50_000, wave: 500 });
    await approveAll(batch);
    const result = await batch.result();
    assert.deepEqual(result.states, { done: 50_000 });
    assert.equal(world.sent.length, 50_000);
    assert.ok(world.ranges.every(({ from, to }) => to - from <= rangeSize));
    const events = await eventsOf(batch);
    assert.ok(events <= 700, `${events} events`);
  });

  it('H-18 a hundred times the commands in one wave cost the same history', async () => {
    const counts: number[] = [];
    for (const size of [500, 50_000]) {
      const batch = await begin({ size });
      await approveAll(batch);
      await batch.result();
      counts.push(await eventsOf(batch));
      await workers?.stop();
    }
    assert.ok(Math.abs((counts[0] ?? 0) - (counts[1] ?? 0)) <= 6, `${counts.join(' and ')} events`);
  });

  it('goes on where it was when both workers end in the middle of a wave, and sends nothing twice', async () => {
    const batch = await begin({ size: 5_000, wave: 4_500 });
    let held: (() => void) | undefined;
    const stalled = new Promise<void>((resolve) => {
      world.before = async (call) => {
        if (call !== 'release' || world.sent.length !== 2 * rangeSize || held !== undefined) return;
        await new Promise<void>((go) => {
          held = go;
          resolve();
        });
        throw new ControlError('UNAVAILABLE', 'the database is gone');
      };
    });
    await approveAll(batch);
    await stalled;
    const stopping = Promise.all([workers?.stop(), workflows.stop()]);
    held?.();
    await stopping;
    await workflows.start();
    workers = await runBatchWorkers(temporal, world, { activitiesOnly: true });
    assert.equal((await batch.result()).outcome, 'finished');
    assert.deepEqual([world.sent.length, new Set(world.sent).size], [5_000, 5_000]);
  });

  for (const call of ['read', 'recordApproval', 'recordApproval.done', 'next', 'release', 'release.done', 'evidence']) {
    it(`${call} fails once: every command goes out once, the evidence is one`, async () => {
      const batch = await begin({ size: 6, wave: 3 });
      let failed = false;
      world.before = (name) => {
        if (name !== call || failed) return;
        failed = true;
        throw new ControlError('UNAVAILABLE', 'a lost answer');
      };
      await approveAll(batch);
      assert.equal((await batch.result()).outcome, 'finished');
      assert.deepEqual([world.sent.length, new Set(world.sent).size, world.evidences], [6, 6, [id]]);
    });
  }
});

describe('approveBatch: a long history', function () {
  this.timeout(90_000);

  it('goes on as a new run with the id alone: the update works there, and no approver counts twice', async () => {
    const temporal = await startTestTemporal(['limit.historyCount.suggestContinueAsNew=60']);
    const world = new BatchWorld();
    const id = world.add('long', { size: 2 });
    const workers = await runBatchWorkers(temporal, world);
    try {
      const first = await startBatch(temporal.client, id);
      await waitsForApprovals(first);
      const approval = world.approval(0, id);
      await first.executeUpdate(messages.approve, { args: [approval], updateId: 'ann' });
      const runIdOf = async (): Promise<string> => (await temporal.client.workflow.getHandle(first.workflowId).describe()).runId;
      const before = await runIdOf();
      for (let sent = 0; sent < 80; sent += 1) await first.signal('nobodyKnowsThis', sent).catch(() => undefined);
      while ((await runIdOf()) === before) {
        await temporal.client.workflow.getHandle(first.workflowId).signal('nobodyKnowsThis', 0);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      const later: BatchHandle = temporal.client.workflow.getHandle(first.workflowId);
      assert.equal((await waitsForApprovals(later)).approvals.length, 1);
      const again = await later.executeUpdate(messages.approve, { args: [approval], updateId: 'ann' });
      assert.deepEqual([again.approvals.length, world.sent], [1, []]);
      await later.executeUpdate(messages.approve, { args: [world.approval(2, id)] });
      assert.equal((await later.result()).outcome, 'finished');
      assert.equal(world.sent.length, 2);
    } finally {
      await workers.stop();
      await temporal.stop();
    }
  });
});
