/**
 * Thousands of signals to one run, as whoever may write to the namespace can send them: the worker lives, the run lives, and a right word
 * still counts. Each number here was enough to end a workflow or its worker's process. BC_TEST_NIGHTLY=1 sends as many as the server takes.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { taskQueues } from '../../temporal.config.ts';
import * as batch from '../../workflows/approve-batch/messages.ts';
import { heardPerName } from '../../workflows/shared/inbox.ts';
import { maxOverrides } from '../../workflows/shared/lifecycle-state.ts';
import { sharedTemporal, startTestTemporal, type TestTemporal } from '../harness/temporal.ts';
import { type BatchHandle, runBatchWorkers, startBatch, waitsForApprovals } from './batch-rig.ts';
import { BatchWorld } from './batch-world.ts';
import { runMetalWorkers, startRun, untilRun } from './metal-rig.ts';
import { MetalWorld } from './metal-world.ts';
import { type RunningWorkers, runRotationWorkers, startRotation, untilStatus } from './rotation-rig.ts';
import { RotationWorld } from './rotation-world.ts';

/** Above the 2,000 activities that the server lets one run have pending; by night as many signals as it lets one run have at all. */
const flood = process.env['BC_TEST_NIGHTLY'] === '1' ? 10_000 : 2_200;

type Signal = readonly [name: string, ...args: unknown[]];

/** In what order they arrive does not matter; the server refuses what is beyond its own limit, or behind the end. */
async function send(client: Client, handle: WorkflowHandle, signals: readonly Signal[]): Promise<void> {
  const left = signals.values();
  const some = async (): Promise<void> => {
    for (const [name, ...args] of left) {
      await client.workflow
        .getHandle(handle.workflowId)
        .signal(name, ...args)
        .catch(assertRefused);
    }
  };
  await Promise.all(Array.from({ length: 25 }, some));
}

const assertRefused = (error: unknown): void => assert.match([error, (error as Error).cause].join(), /limit|throttl|already completed/i);

const times = (count: number, signalOf: (index: number) => Signal): Signal[] =>
  Array.from({ length: count }, (_, index) => signalOf(index));

/** Every kind that no workflow acts on; the reserved name alone once failed every task of a run, for ever. */
const noise = (count: number, name: string): Signal[] => {
  const kinds: readonly Signal[] = [['__temporal_made_up', 7], [name, { garbage: true }], [name], ['nobodyKnowsThis', 1]];
  return times(count, (index) => kinds[index % kinds.length] as Signal);
};

/** false: the run is full of signals, and the server said so. */
const signalled = (handle: BatchHandle, approval: batch.ApprovalMessage): Promise<boolean> =>
  handle.signal(batch.approveSignal, approval).then(
    () => true,
    (error: unknown) => {
      assertRefused(error);
      return false;
    },
  );

const until = async (holds: () => Promise<boolean>): Promise<void> => {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 50));
};

const hex = (index: number): string => createHash('sha256').update(`${index}`).digest('hex');
const forged = (count: number): Signal[] => times(count, (index) => ['approveSignal', { kid: hex(index), sig: 'A'.repeat(86) }]);

const detailsOf = async (handle: WorkflowHandle): Promise<string> =>
  (await handle.query<{ currentDetails?: string }>('__temporal_workflow_metadata')).currentDetails ?? '';

describe('floods of signals', function () {
  this.timeout(flood > 5_000 ? 600_000 : 120_000);
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let handle: WorkflowHandle | undefined;
  let unique = 0;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    if (handle !== undefined)
      await temporal.client.workflow
        .getHandle(handle.workflowId)
        .terminate('the test is over')
        .catch(() => undefined);
    await workers?.stop();
    [workers, handle] = [undefined, undefined];
  });

  const startHeld = async (): Promise<{ world: BatchWorld; id: string; run: BatchHandle }> => {
    const world = new BatchWorld();
    unique += 1;
    const id = world.add(`flood-${unique}-${process.pid}`, { size: 3 });
    const run = await startBatch(temporal.client, id);
    handle = run;
    return { world, id, run };
  };

  it(`approveBatch takes right approvals after ${flood} forged ones that waited for its worker`, async () => {
    const { world, id, run } = await startHeld();
    const { runId: firstRunId } = await run.describe();
    await send(temporal.client, run, forged(flood));
    workers = await runBatchWorkers(temporal, world);
    const later: BatchHandle = temporal.client.workflow.getHandle(run.workflowId);
    await later.executeUpdate(batch.approve, { args: [world.approval(0, id)] });
    // A run that hears no more goes on as one that does.
    const first = temporal.client.workflow.getHandle(run.workflowId, firstRunId);
    while ((await first.describe()).status.name === 'RUNNING') await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal((await first.describe()).status.name, 'CONTINUED_AS_NEW');
    await later.signal(batch.approveSignal, world.approval(1, id));
    assert.equal((await later.result()).outcome, 'finished');
    assert.deepEqual([world.sent.length, new Set(world.sent).size], [3, 3]);
  });

  it(`approveBatch counts right approvals that come as signals in the middle and at the end of ${flood} forged ones`, async () => {
    const { world, id, run } = await startHeld();
    const forgeries = forged(flood - 2);
    await send(temporal.client, run, [...forgeries.slice(0, flood / 2), ['approveSignal', world.approval(0, id)]]);
    await send(temporal.client, run, [...forgeries.slice(flood / 2), ['approveSignal', world.approval(1, id)]]);
    workers = await runBatchWorkers(temporal, world);
    const result = await temporal.client.workflow.getHandle<() => Promise<batch.BatchResult>>(run.workflowId).result();
    assert.deepEqual(
      [result.outcome, result.approvedBy, world.sent.length],
      ['finished', [world.approval(0, id).kid, world.approval(1, id).kid], 3],
    );
  });

  it(`approveBatch hears a right approval among ${flood} signals of noise, and says how many it ignored`, async () => {
    const { world, id, run } = await startHeld();
    workers = await runBatchWorkers(temporal, world);
    await waitsForApprovals(run);
    await workers.stop();
    const around = noise(flood, 'approveSignal');
    await send(temporal.client, run, [
      ...around.slice(0, flood / 2),
      ['approveSignal', world.approval(0, id)],
      ...around.slice(flood / 2, -1),
    ]);
    workers = await runBatchWorkers(temporal, world);
    const later: BatchHandle = temporal.client.workflow.getHandle(run.workflowId);
    while ((await later.query<batch.BatchStatus>('status')).approvals.length === 0)
      await new Promise((resolve) => setTimeout(resolve, 100));
    // By night there are more of them than one run's history should have, and it goes on as a new one.
    if (flood < 4_000) assert.match(await detailsOf(later), /- \d+ signals ignored: of no name, or no shape, that this workflow knows/);
    await later.executeUpdate(batch.approve, { args: [world.approval(2, id)] });
    assert.equal((await later.result()).outcome, 'finished');
  });

  it(`rotateCommandRoot ends as it should with ${flood} exclusions at its door, and names what it hears no more`, async () => {
    const world = new RotationWorld({ 'node-1': {}, 'node-2': { obedient: false } });
    const run = await startRotation(temporal.client);
    handle = run;
    // Room for one more: a run that is full of signals takes none, not even a right one.
    await send(temporal.client, run, [
      ...noise(40, 'pause'),
      ...times(flood - 50, (index): Signal => ['excludeSignal', { node: `made-up-${index}`, actor: 'mallory', reason: 'a flood' }]),
    ]);
    workers = await runRotationWorkers(temporal, world);
    const status = await untilStatus(run, ({ phase, behind }) => phase === 'waiting-fleet' && behind !== null);
    assert.ok(status.overrides.length <= maxOverrides, `${status.overrides.length} overrides`);
    assert.match(
      await detailsOf(run),
      new RegExp(`- \\*\\*\\d+ signals ignored\\*\\*: of \`excludeSignal\` more than ${heardPerName} came, no more is heard in this run`),
    );
    // Other names are heard, and so is every update.
    await run.signal('pause', { actor: 'ann', reason: 'a look' });
    await untilStatus(run, ({ paused }) => paused?.actor === 'ann');
    // It stays away: the way back would wait for it, too.
    world.nodes.delete('node-2');
    await run.executeUpdate('abort', { args: [{ actor: 'ann', reason: 'looks like an attack' }] });
    assert.equal(((await run.result()) as { outcome: string }).outcome, 'aborted');
  });

  it('provisionMachine ends as it should with every kind of noise before it begins and while it waits', async () => {
    const world = new MetalWorld();
    world.approval = { held: true, state: 'pending' };
    const run = await startRun(temporal.client, 'provision');
    handle = run;
    await send(temporal.client, run, noise(400, 'cancelSignal'));
    workers = await runMetalWorkers(temporal, world);
    await untilRun(run, ({ phase }) => phase === 'waiting-approvals');
    await send(temporal.client, run, noise(40, 'giveUpSignal'));
    assert.match(await detailsOf(run), /signals ignored/);
    world.approval.state = 'approved';
    assert.equal((await run.result()).end, 'done');
  });

  it('a task that is slow is the server’s to give out again: the sandbox waits longer than a task may take', async () => {
    const worker = await temporal.createWorker({ taskQueue: `${taskQueues.control}-of-a-test` });
    assert.equal((worker.options as { isolateExecutionTimeoutMs?: number }).isolateExecutionTimeoutMs, 30_000);
    const running = worker.run();
    worker.shutdown();
    await running;
  });
});

describe('a flood of signals that does not end', function () {
  this.timeout(180_000);

  it('approveBatch counts every right approval whose signal the server took, over runs that are full one after the other', async () => {
    const temporal = await startTestTemporal(['history.maximumSignalsPerExecution=600']);
    const world = new BatchWorld();
    const id = world.add('endless', { size: 3 });
    const workers = await runBatchWorkers(temporal, world);
    const run = temporal.client.workflow.getHandle<() => Promise<batch.BatchResult>>((await startBatch(temporal.client, id)).workflowId);
    const life = { over: false };
    const flooding = flood();
    try {
      await waitsForApprovals(run);
      const { runId: firstRunId } = await run.describe();
      await approve(0);
      await until(async () => (await run.describe()).runId !== firstRunId);
      await approve(1);
      assert.equal((await run.result()).outcome, 'finished');
      assert.deepEqual([world.sent.length, new Set(world.sent).size], [3, 3]);
    } finally {
      life.over = true;
      await flooding;
      await workers.stop();
      await temporal.stop();
    }

    async function flood(): Promise<void> {
      while (!life.over) await send(temporal.client, run, forged(heardPerName));
    }
    /** As an approver does who is told that it was not taken: once more. What was taken is not sent again. */
    async function approve(by: number): Promise<void> {
      await until(() => signalled(run, world.approval(by, id)));
      await until(async () => (world.stored.get(id)?.facts.approvals.length ?? 0) > by);
    }
  });
});
