/** A batch from its rows to the nodes' logs: the real services on PostgreSQL, the real workflow on a real server. */
import assert from 'node:assert/strict';
import { createBatches, createBatchRelease, createBatchWatch } from '../../activities/adapters/batches.ts';
import { createBatchControlActivities } from '../../activities/batches-control.ts';
import { createBatchSigningActivities } from '../../activities/batches-signing.ts';
import { readOpenCommands } from '../../drizzle/queries/dispatch.ts';
import { readBatch } from '../../services/batches/index.ts';
import { cancelCommand } from '../../services/command-ends.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import * as messages from '../../workflows/approve-batch/messages.ts';
import { heardPerName } from '../../workflows/shared/inbox.ts';
import { useDatabase } from '../harness/postgres.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import {
  addNodes,
  approvalOf,
  approve,
  batchWorker,
  createApprover,
  createBatchOf,
  enqueueAll,
  publishQuorum,
  rebootIn,
  rebootLeaf,
  three,
} from '../services/batch-support.ts';
import { trustDomain } from '../services/support.ts';
import { type BatchHandle, startBatch, untilBatch, waitsForApprovals } from '../workflows/batch-rig.ts';
import { type RunningWorkers, running } from '../workflows/rotation-rig.ts';

const nodes = Array.from({ length: 6 }, (_, at) => `n${at}`);

describe('batches: workflow, services and database', function () {
  this.timeout(60_000);
  const used = useDatabase({ max: 10 });
  let temporal: TestTemporal;
  let workers: RunningWorkers;
  const evidences: string[] = [];

  before(async () => {
    temporal = await sharedTemporal();
    await addNodes(used.db, nodes);
    await publishQuorum(used.db);
    const batches = createBatches({ db: used.db, trustDomain: () => trustDomain });
    const worker = await batchWorker(used.db);
    const release = createBatchRelease({ db: used.db, trustDomain: () => trustDomain, worker, poke: () => undefined });
    const evidence = { write: async (batchId: string) => void evidences.push(batchId) };
    workers = running([
      await temporal.createWorker({
        taskQueue: taskQueues.control,
        activities: createBatchControlActivities({
          now: Date.now,
          batches,
          workflows: createBatchWatch(temporal.client, workflowIds.approveBatch),
        }),
      }),
      await temporal.createWorker({
        taskQueue: taskQueues.signing,
        activities: createBatchSigningActivities({ now: Date.now, batches, release, evidence }),
        workflowBundle: undefined as never,
      }),
    ]);
  });
  after(() => workers.stop());

  const inLogs = async (batchId: string): Promise<string[]> => {
    const open = await readOpenCommands(
      used.db,
      nodes.map((nodeId) => ({ nodeId, afterSeq: 0 })),
      100,
    );
    const rows = await used.db.query<{ id: string }>({ text: 'select command_id as id from command_batch_members where batch_id = $1' }, [
      batchId,
    ]);
    const own = new Set(rows.map(({ id }) => id));
    return open
      .map(({ id }) => id)
      .filter((id) => own.has(id))
      .sort();
  };
  const endAll = (batchId: string, state: number): Promise<unknown> =>
    used.db.query({ text: 'update node_commands set state = $2, finished_at = now() where batch_id = $1 and state < 2 and seq > 0' }, [
      batchId,
      state,
    ]);
  const make = async (waves: Parameters<typeof createBatchOf>[2] = {}): Promise<string> => {
    const { batchId } = await createBatchOf(
      used.db,
      nodes.map((node) => rebootLeaf(node)),
      waves,
    );
    await enqueueAll(
      used.db,
      nodes.map((node) => rebootIn(node, { id: `${batchId.slice(0, 20)}/${node}`, batchId })),
    );
    return batchId;
  };
  const signed = async (batchId: string, by: (typeof three)[number], domain?: string): Promise<messages.ApprovalMessage> => {
    const { kid, sig } = await approvalOf(used.db, batchId, domain === undefined ? by : { ...by, domain });
    return { kid, sig: Buffer.from(sig).toString('base64url') };
  };
  const begin = async (batchId: string): Promise<BatchHandle> => {
    const handle = await startBatch(temporal.client, batchId);
    await waitsForApprovals(handle);
    return handle;
  };

  it('BAT-062 BAT-064 nothing reaches a log before two of three approvers of the published set have signed for this deployment', async () => {
    const batchId = await make();
    const handle = await begin(batchId);
    const [ann, ben] = three;
    assert.ok(ann !== undefined && ben !== undefined);
    for (const forged of [
      await signed(batchId, ann, 'staging.example.com'),
      await signed(batchId, createApprover()),
      { kid: ann.kid, sig: (await signed(batchId, ben)).sig },
    ])
      await assert.rejects(handle.executeUpdate(messages.approve, { args: [forged] }));
    await handle.executeUpdate(messages.approve, { args: [await signed(batchId, ann)] });
    await handle.executeUpdate(messages.approve, { args: [await signed(batchId, ann)] });
    assert.deepEqual(await inLogs(batchId), []);
    await handle.signal(messages.approveSignal, await signed(batchId, ben));
    await untilBatch(handle, ({ phase }) => phase === 'watching');
    assert.equal((await inLogs(batchId)).length, nodes.length);
    await endAll(batchId, 2);
    const result = await handle.result();
    assert.deepEqual([result.outcome, result.states, result.approvedBy.length], ['finished', { done: 6 }, 2]);
    assert.ok(evidences.includes(batchId));
  });

  it('BAT-062 counts right approvals whose signals come behind more forged ones than a run hears, under strange keys and an approver’s', async () => {
    const batchId = await make();
    const handle = await begin(batchId);
    const [ann, ben] = three;
    assert.ok(ann !== undefined && ben !== undefined);
    const forged = [await signed(batchId, ann, 'staging.example.com'), await signed(batchId, createApprover())];
    const flood = Array.from({ length: heardPerName + 150 }, (_, at) => forged[at % forged.length] as messages.ApprovalMessage);
    await Promise.all(flood.map((approval) => handle.signal(messages.approveSignal, approval)));
    for (const by of [ann, ben]) await handle.signal(messages.approveSignal, await signed(batchId, by));
    const later: BatchHandle = temporal.client.workflow.getHandle(handle.workflowId);
    await untilBatch(later, ({ phase }) => phase === 'watching');
    assert.equal((await inLogs(batchId)).length, nodes.length);
    await endAll(batchId, 2);
    assert.deepEqual((await later.result()).approvedBy.toSorted(), [ann.kid, ben.kid].toSorted());
  });

  it('releases by the plan of the row, from the first that is held, and a hand-made call releases no more', async () => {
    const batchId = await make({ waves: { size: 2, maxFailures: 0, pauseMs: 0, healthGate: false } });
    await cancelCommand(used.db, { id: `${batchId.slice(0, 20)}/n3`, reason: 'not this one', now: Date.now() });
    const handle = await begin(batchId);
    await approve(used.db, batchId);
    await handle.signal(messages.approvalRecorded);
    await untilBatch(handle, ({ waitsFor }) => waitsFor !== '');
    assert.equal((await inLogs(batchId)).length, 2);
    assert.equal((await handle.query(messages.status)).released, 3, 'the one that was cancelled has ended');
    const ended = handle.result();
    const isRunning = async (): Promise<boolean> => (await handle.describe()).status.name === 'RUNNING';
    while (await isRunning()) {
      assert.ok((await inLogs(batchId)).length <= 2, 'never more than a wave');
      await endAll(batchId, 2);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    const result = await ended;
    assert.deepEqual(result.states, { done: 5, cancelled: 1 });
  });

  it('stops when more fail than the plan tolerates: the rest is cancelled in the database', async () => {
    const batchId = await make({ waves: { size: 3, maxFailures: 0, pauseMs: 0, healthGate: false } });
    const handle = await begin(batchId);
    await approve(used.db, batchId);
    await handle.signal(messages.approvalRecorded);
    await untilBatch(handle, ({ released }) => released === 3);
    await endAll(batchId, 3);
    const result = await handle.result();
    assert.deepEqual([result.outcome, result.states], ['stopped', { failed: 3, cancelled: 3 }]);
    const { state, closedBy } = await readBatch(used.db, batchId, { now: Date.now() });
    assert.deepEqual([state, closedBy], ['cancelled', 'the stop rule of its waves']);
  });

  it('BAT-059 BAT-060 the schedule records what expired and cancels its commands; it watches what nobody watches', async () => {
    const [late, unwatched] = [await make(), await make()];
    await used.db.query({ text: "update command_batches set not_after = now() - interval '1 second' where id = $1" }, [late]);
    const reconciled = await temporal.client.workflow.execute<() => Promise<{ expired: number; commands: number }>>('reconcileBatches', {
      workflowId: 'reconcile-real',
      taskQueue: taskQueues.control,
      args: [],
    });
    assert.deepEqual([reconciled.expired, reconciled.commands], [1, 6]);
    const { rows } = { rows: await used.db.query<{ state: string }>({ text: 'select state from command_batches where id = $1' }, [late]) };
    assert.deepEqual(rows, [{ state: 'expired' }]);
    const handle: BatchHandle = temporal.client.workflow.getHandle(workflowIds.approveBatch(unwatched));
    await waitsForApprovals(handle);
    await handle.signal(messages.reject, { actor: 'ben', reason: 'not today' });
    assert.equal((await handle.result()).outcome, 'rejected');
    assert.equal((await readBatch(used.db, unwatched, { now: Date.now() })).closeReason, 'rejected: not today');
  });

  it('a batch that is approved before a command is in it waits for one, and its evidence is of what ran', async () => {
    const { batchId } = await createBatchOf(
      used.db,
      nodes.map((node) => rebootLeaf(node)),
    );
    const handle = await begin(batchId);
    for (const approver of three.slice(0, 2)) await handle.executeUpdate(messages.approve, { args: [await signed(batchId, approver)] });
    await untilBatch(handle, ({ waitsFor }) => waitsFor.includes('no command'));
    assert.ok(!evidences.includes(batchId));
    await enqueueAll(used.db, [rebootIn('n0', { id: `${batchId.slice(0, 20)}/n0`, batchId })]);
    await endAll(batchId, 2);
    const result = await handle.result();
    assert.deepEqual([result.outcome, result.released, result.states], ['finished', 1, { done: 1 }]);
    assert.ok(evidences.includes(batchId));
  });

  it('a writer of the namespace who says that it is approved reaches no log', async () => {
    const batchId = await make();
    const handle = await begin(batchId);
    const described = async (): Promise<string | undefined> =>
      (await handle.describe()).raw.pendingActivities?.find((one) => one.activityType?.name === 'awaitDecision')?.activityId ?? undefined;
    let activityId = await described();
    while (activityId === undefined) activityId = await described();
    const facts = {
      batchId,
      state: 'approved',
      endedBecause: '',
      reason: '',
      root: '',
      size: 6,
      required: 0,
      approvals: [],
      notAfter: 0,
      createdBy: '',
      proposedBy: '',
    };
    await temporal.client.activity.complete({ workflowId: handle.workflowId, activityId }, facts);
    while ((await described()) === activityId || (await described()) === undefined) await new Promise((resolve) => setTimeout(resolve, 25));
    assert.deepEqual(await inLogs(batchId), []);
    await handle.signal(messages.cancel, { actor: 'ann', reason: 'the test is over' });
    assert.equal((await handle.result()).outcome, 'cancelled');
  });
});
