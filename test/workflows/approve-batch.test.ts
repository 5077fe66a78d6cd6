/** approveBatch on a real server: held, approved, released in waves, ended. */
import assert from 'node:assert/strict';
import { WorkflowFailedError, WorkflowUpdateFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { createBatchControlActivities, leavesBytes } from '../../activities/batches-control.ts';
import { workflowIds } from '../../temporal.config.ts';
import * as messages from '../../workflows/approve-batch/messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type BatchHandle, runBatchWorkers, startBatch, untilBatch, waitsForApprovals } from './batch-rig.ts';
import { type BatchOptions, BatchWorld } from './batch-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

const words = { actor: 'ann', reason: 'wrong rack' };

async function refusedBy(call: Promise<unknown>): Promise<{ type: string | null | undefined; message: string }> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof WorkflowUpdateFailedError || error instanceof WorkflowFailedError, String(error));
  const { cause } = error;
  assert.ok(cause instanceof ApplicationFailure, String(cause));
  return { type: cause.type, message: cause.message };
}

describe('approveBatch', function () {
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
    await handle?.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    [workers, handle] = [undefined, undefined];
  });

  const begin = async (options: BatchOptions = {}, before: BatchWorld['before'] = () => {}): Promise<BatchHandle> => {
    world = new BatchWorld();
    world.before = before;
    unique += 1;
    id = world.add(`b${unique}-${process.pid}`, options);
    workers = await runBatchWorkers(temporal, world, { activitiesOnly: true });
    handle = await startBatch(temporal.client, id);
    return handle;
  };
  const approve = (batch: BatchHandle, by: number): Promise<messages.BatchStatus> =>
    batch.executeUpdate(messages.approve, { args: [world.approval(by, id)] });
  const events = async (batch: BatchHandle): Promise<number> => (await batch.fetchHistory()).events?.length ?? 0;

  it('BAT-062 holds everything until the last approval is there, then releases it wave by wave and ends with the counts', async () => {
    const batch = await begin({ size: 10, wave: 4 });
    await waitsForApprovals(batch);
    assert.deepEqual(world.sent, []);
    const first = await approve(batch, 0);
    assert.deepEqual([first.approvals.length, first.required, first.released], [1, 2, 0]);
    assert.deepEqual(world.sent, []);
    await approve(batch, 1);
    const result = await batch.result();
    assert.deepEqual(
      { ...result, approvedBy: result.approvedBy.length },
      { batchId: id, outcome: 'finished', approvedBy: 2, released: 10, states: { done: 10 }, failures: [] },
    );
    assert.deepEqual(world.ranges, [
      { from: 0, to: 4 },
      { from: 4, to: 8 },
      { from: 8, to: 10 },
    ]);
    assert.equal(new Set(world.sent).size, 10);
    assert.deepEqual(world.evidences, [id]);
  });

  it('an approval that came through the api is seen: at once with the nudge, by the next look without it', async () => {
    const batch = await begin({ size: 2 });
    await waitsForApprovals(batch);
    await world.approveByApi(0, id);
    await batch.signal(messages.approvalRecorded);
    await untilBatch(batch, ({ approvals }) => approvals.length === 1);
    await world.approveByApi(2, id);
    assert.equal((await batch.result()).outcome, 'finished');
  });

  it('the signal twin counts as the update does', async () => {
    const batch = await begin({ size: 2 });
    await Promise.all([workers?.stop(), workflows.stop()]);
    await batch.signal(messages.approveSignal, world.approval(0, id));
    await batch.signal(messages.approveSignal, world.approval(1, id));
    await workflows.start();
    workers = await runBatchWorkers(temporal, world, { activitiesOnly: true });
    assert.equal((await batch.result()).outcome, 'finished');
  });

  it('tells an approver what is wrong, and leaves no event of what cannot be an approval', async () => {
    // An attempt of the wait that ends while an update is judged makes the server keep that one's task: the second look is held.
    let looks = 0;
    let goOn = (): void => {};
    const held = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const batch = await begin({ size: 2 }, (call) => {
      if (call !== 'read') return undefined;
      looks += 1;
      return looks === 2 ? held : undefined;
    });
    await waitsForApprovals(batch);
    const good = world.approval(0, id);
    const before = await events(batch);
    for (const [value, says] of [
      [undefined, /^approve: expected an object with kid, sig, batchId, root, size, notAfterMs, trustDomain, got nothing/],
      [{ kid: good.kid.toUpperCase(), sig: good.sig }, /kid must be 64 lower-case hex digits/],
      [{ kid: good.kid, sig: `${good.sig}AA` }, /sig must be 64 bytes as base64url/],
      [{ ...good, sig: Buffer.from(good.sig, 'base64url').toString('base64') }, /sig must be 64 bytes as base64url/],
      [{ ...good, batchId: 'another' }, new RegExp(`it was made for another batch than ${id}`)],
      [{ ...good, key: 'mine' }, /key is not a known field/],
    ] as const) {
      const { type, message } = await refusedBy(batch.executeUpdate(messages.approve, { args: [value as never] }));
      assert.equal(type, 'INVALID_INPUT');
      assert.match(message, says);
    }
    assert.equal(await events(batch), before, 'a refused update is not in the history');
    goOn();
    const forged = { kid: good.kid, sig: world.approval(1, id).sig };
    assert.deepEqual(await refusedBy(batch.executeUpdate(messages.approve, { args: [forged] })), {
      type: 'BAD_SIGNATURE',
      message: `the signature of ${good.kid.slice(0, 16)} is not over this batch`,
    });
    const { approvals, phase } = await batch.query(messages.status);
    assert.deepEqual([approvals.length, phase], [0, 'waiting-approvals']);
  });

  it('an approver who signs twice counts once', async () => {
    const batch = await begin({ size: 2 });
    await waitsForApprovals(batch);
    await approve(batch, 0);
    assert.equal((await approve(batch, 0)).approvals.length, 1);
    assert.deepEqual(world.sent, []);
  });

  it('BAT-058 ends as expired when its window closes, and a late approval changes nothing', async () => {
    const batch = await begin({ size: 2 });
    await waitsForApprovals(batch);
    await approve(batch, 0);
    // The clock that the window is judged by, not the one that this machine has to keep up with.
    world.now = () => Date.now() + 2 * 3_600_000;
    const result = await batch.result();
    assert.equal(result.outcome, 'expired');
    await assert.rejects(world.approveByApi(1, id), /is expired/);
    assert.deepEqual(world.sent, []);
  });

  for (const as of ['cancel', 'reject'] as const) {
    it(`${as} ends a waiting batch, and what it held is cancelled`, async () => {
      const batch = await begin({ size: 3 });
      await waitsForApprovals(batch);
      await batch.signal(as, words);
      assert.equal((await batch.result()).outcome, as === 'cancel' ? 'cancelled' : 'rejected');
      assert.ok(world.commandsOf(id).every(({ state }) => state === 'cancelled'));
      assert.deepEqual(world.sent, []);
    });
  }

  it('a cancel between two waves stops at the wave: what went out is watched, the rest is cancelled', async () => {
    const batch = await begin({ size: 6, wave: 2 });
    world.ends = null;
    await waitsForApprovals(batch);
    await approve(batch, 0);
    await approve(batch, 1);
    await untilBatch(batch, ({ released }) => released === 2);
    await batch.signal(messages.cancel, words);
    await untilBatch(batch, ({ phase }) => phase === 'watching');
    world.endAll(id, 'done');
    const result = await batch.result();
    assert.deepEqual([result.outcome, result.states], ['cancelled', { done: 2, cancelled: 4 }]);
  });

  it('stops by the rule of its waves, keeps the rest from going out, and says why', async () => {
    const batch = await begin({ size: 9, wave: 3, maxFailures: 1 });
    world.ends = null;
    await waitsForApprovals(batch);
    await approve(batch, 0);
    await approve(batch, 2);
    await untilBatch(batch, ({ released }) => released === 3);
    world.endAll(id, 'failed', 'no such disk');
    const result = await batch.result();
    assert.deepEqual([result.outcome, result.states, result.failures.length], ['stopped', { failed: 3, cancelled: 6 }, 3]);
    assert.equal(world.sent.length, 3);
  });

  it('waits for the health gate, shows what it waits for, and goes on', async () => {
    const batch = await begin({ size: 4, wave: 2 });
    await waitsForApprovals(batch);
    world.setHealthy(id, false);
    await approve(batch, 0);
    await approve(batch, 1);
    const waiting = await untilBatch(batch, ({ waitsFor }) => waitsFor !== '');
    assert.equal(waiting.waitsFor, '1 machine(s) are not connected again');
    world.setHealthy(id, true);
    assert.equal((await batch.result()).outcome, 'finished');
  });

  it('shows approvers what is held, who approved, and the command that approves', async () => {
    const batch = await begin({ size: 3 });
    world.change(id, { proposedBy: 'agent-7', reason: '`x` <b>bold</b> \u202efirmware' });
    await waitsForApprovals(batch);
    await approve(batch, 1);
    const { currentDetails } = await batch.query<{ currentDetails: string }>('__temporal_workflow_metadata');
    const { root } = await batch.query(messages.status);
    for (const line of [
      '**waiting-approvals** since',
      '- approvals: 1 of 2, 1 to go',
      world.approvers[1]?.kid.slice(0, 16) ?? '',
      `better-compute batch approve ${id} --key <file> --root ${root}`,
      `temporal workflow update execute --workflow-id batch/${id} --name approve --input-file a.json`,
    ])
      assert.ok(currentDetails.includes(line), `${line}\n${currentDetails}`);
    const attributes = (await batch.describe()).searchAttributes;
    assert.deepEqual(
      [attributes['BcPhase'], attributes['BcWaitingOn'], attributes['BcBehind']],
      [['waiting-approvals'], ['approvers'], [1]],
    );
  });

  it('lists its first leaves in pages that are bounded in number and in bytes', async () => {
    const batch = await begin({ size: 2_500 });
    await waitsForApprovals(batch);
    const first = await batch.query(messages.scopePage, { limit: 150 });
    assert.deepEqual([first.leaves.length, first.next, first.size, first.more], [150, 149, 2_500, `better-compute batch show ${id}`]);
    const all = await batch.query(messages.scopePage, 'garbage' as never);
    assert.deepEqual([all.leaves.length <= messages.leavesKept, all.next], [true, null]);
    const second = await batch.query(messages.scopePage, { after: 149, limit: 10_000 });
    assert.deepEqual([second.leaves[0]?.index, second.leaves.length, second.next], [150, all.leaves.length - 150, null]);
    const bytes = (page: messages.ScopePage): number => Buffer.byteLength(JSON.stringify(page.leaves));
    assert.ok(bytes(all) <= leavesBytes, `${bytes(all)} bytes`);
  });

  it('of leaves with the longest texts it lists as many as have room', async () => {
    const longest = (index: number) => ({ index, subject: 's'.repeat(512), kind: 'k'.repeat(512), payloadSha256: 'f'.repeat(64) });
    const activities = createBatchControlActivities({
      now: Date.now,
      batches: {
        read: async () => null as never,
        counts: async () => null as never,
        leaves: async (_: string, limit: number) => Array.from({ length: limit }, (__, index) => longest(index)),
      } as unknown as BatchWorld['batches'],
      workflows: null as never,
    });
    const { leaves } = await activities.openBatch({ batchId: 'b', leaves: messages.leavesKept });
    const bytes = Buffer.byteLength(JSON.stringify(leaves));
    const one = bytes / leaves.length;
    assert.ok(bytes <= leavesBytes && bytes > leavesBytes - 2 * one, `${leaves.length} leaves, ${bytes} bytes`);
  });

  it('runs under the id of its batch only, and ends at once where there is no such batch', async () => {
    world = new BatchWorld();
    workers = await runBatchWorkers(temporal, world, { activitiesOnly: true });
    const start = (workflowId: string, args: unknown[]): Promise<BatchHandle> =>
      temporal.client.workflow.start('approveBatch', { workflowId, taskQueue: 'bc-control', args });
    assert.match(
      (await refusedBy((await start('batch/other', [{ batchId: 'x' }])).result())).message,
      /under the workflow id batch\/x only/,
    );
    assert.match(
      (await refusedBy((await start('batch/y', [{ batchId: 'y', keys: ['mine'], threshold: 1 }])).result())).message,
      /keys is not a known field/,
    );
    await assert.rejects((await start(workflowIds.approveBatch('gone'), [{ batchId: 'gone' }])).result(), (error: WorkflowFailedError) => {
      assert.equal((error.cause?.cause as Error | undefined)?.message, 'no batch is called gone');
      return true;
    });
  });
});
