/** Runs on machines while workers are killed: each command has its effect once, and fifty machines go on. */
import assert from 'node:assert/strict';
import { ActivityNotFoundError } from '@temporalio/client';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { type RunHandle, runMetalWorkers, startRun } from './metal-rig.ts';
import { MetalWorld } from './metal-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

describe('runs on machines while workers are killed', function () {
  this.timeout(120_000);
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  const handles: RunHandle[] = [];

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    for (const handle of handles.splice(0)) await handle.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    workers = undefined;
  });

  for (const point of ['send', 'sent'] as const)
    it(`M38 has every effect once when the attempt is lost at "${point}" of every command`, async () => {
      const world = new MetalWorld();
      const lost = new Set<string>();
      world.before = (call) => {
        if (!call.startsWith(`${point} `) || lost.has(call)) return;
        lost.add(call);
        throw new Error(`killed at ${call}`);
      };
      workers = await runMetalWorkers(temporal, world);
      const run = await startRun(temporal.skipping, 'provision');
      handles.push(run);
      assert.equal((await run.result()).end, 'done');
      assert.equal(lost.size, 8, 'every command lost an attempt');
      assert.deepEqual(
        world.sent.map((id) => id.split('.')[1]),
        Array(8).fill('1'),
        'and none was sent under a second id',
      );
    });

  it('M2 fifty machines that are in the middle of a step go on when the worker is another one', async () => {
    const names = Array.from({ length: 50 }, (_, at) => `f${at}`);
    const world = new MetalWorld(names);
    world.reply.set('read-disks', () => 'hold');
    workers = await runMetalWorkers(temporal, world);
    for (const machineId of names) handles.push(await startRun(temporal.client, 'provision', { machineId }));
    while (world.waits.size < names.length) await new Promise((resolve) => setTimeout(resolve, 50));
    await workers.stop();
    world.reply.clear();
    const ended = [...world.waits].map(([id, wait]) => {
      world.finish(id.slice(id.indexOf('/')));
      return wait;
    });
    workers = await runMetalWorkers(temporal, world);
    // As the relay does: where nobody waits any more, an attempt has read the end itself.
    for (const { workflowId, activityId } of ended)
      await temporal.client.activity.complete({ workflowId, activityId }, { state: 'done', error: '' }).catch((error: unknown) => {
        if (!(error instanceof ActivityNotFoundError)) throw error;
      });
    const results = await Promise.all(handles.map((handle) => handle.result()));
    assert.deepEqual([...new Set(results.map(({ end }) => end))], ['done']);
    assert.equal(world.sent.filter((id) => id === 'wipe.1').length, 50);
  });

  it('M28 M20 REV-005 retires: the identity ends before anything else, the disks are proven to be erased, off is what was read', async () => {
    const world = new MetalWorld(['m1'], 'provisioned');
    const order: string[] = [];
    world.before = (call) => void (call.startsWith('send ') && order.push(`${world.identitiesEnded.length} ${call.slice(5)}`));
    workers = await runMetalWorkers(temporal, world);
    const run = await startRun(temporal.skipping, 'retire');
    handles.push(run);
    assert.equal((await run.result()).end, 'done');
    assert.deepEqual(order, ['1 prepare-boot', '1 set-boot', '1 power', '1 read-disks', '1 wipe', '1 power-off', '1 clean-up']);
    assert.deepEqual([world.machine().state, world.machine().power], ['retired', 'off']);
  });

  it('inspects, and changes a password in two phases: stored, set, adopted', async () => {
    const world = new MetalWorld(['m1'], 'registered');
    workers = await runMetalWorkers(temporal, world);
    const inspected = await startRun(temporal.skipping, 'inspect');
    handles.push(inspected);
    assert.equal((await inspected.result()).end, 'done');
    assert.equal(world.machine().state, 'available');
    const rotated = await startRun(temporal.skipping, 'rotate-bmc');
    handles.push(rotated);
    const { end, runId } = await rotated.result();
    assert.deepEqual([end, world.adopted], ['done', [runId]]);
  });
});
