/** Whoever may write to the Temporal namespace: he can make workflows say what he likes, and machines do nothing. */
import assert from 'node:assert/strict';
import { encodeToPayloads } from '@temporalio/common/lib/internal-non-workflow/index.js';
import { taskQueues } from '../../../temporal.config.ts';
import * as messages from '../../../workflows/approve-batch/messages.ts';
import { createApprover, malleated } from '../../harness/approvers.ts';
import { eventually } from '../../harness/eventually.ts';
import type { Held } from './leaves.ts';
import { patienceMs, type Scene } from './scene.ts';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const wire = ({ kid, sig }: { kid: string; sig: Uint8Array }) => ({ kid, sig: Buffer.from(sig).toString('base64url') });

/** Of a batch and of a run of commands alike: one command, which is done. */
const outcomeOf = (result: unknown): string => {
  const { states } = result as { states?: Record<string, number> };
  return JSON.stringify(states) === '{"done":1}' ? 'done once' : JSON.stringify(result);
};

export function namespaceWriter(the: () => Scene): void {
  describe('the writer of the Temporal namespace', () => {
    const handleOf = ({ workflowId }: Held) => the().stack.client.workflow.getHandle(workflowId);
    const pendingOf = (workflowId: string, type: string, not = ''): Promise<string> =>
      eventually(
        `${type} of ${workflowId}`,
        async () => {
          const { raw } = await the().stack.client.workflow.getHandle(workflowId).describe();
          const id = raw.pendingActivities?.find((one) => one.activityType?.name === type)?.activityId;
          return typeof id === 'string' && id !== not && id;
        },
        patienceMs,
      );
    const approvedFacts = ({ batchId, root, notAfterMs }: Held) => ({
      batchId,
      state: 'approved',
      endedBecause: '',
      reason: 'approved, believe me',
      root: Buffer.from(root).toString('hex'),
      size: 1,
      required: 0,
      approvals: [],
      notAfter: notAfterMs,
      createdBy: 'olga',
      proposedBy: '',
    });
    it('garbage and forged approvals, as signals: none counts, and two true ones still release it once', async () => {
      const scene = the();
      const { stack, anna, ben } = scene;
      const leaf = { node: 'node-1', reason: 'signals' };
      const batch = await scene.hold([leaf]);
      const other = await scene.hold([leaf]);
      const id = await scene.put(batch, leaf);
      await scene.approve(batch, anna);
      const handle = handleOf(batch);
      await scene.nothingHappens(async () => {
        const good = await scene.sign(batch, anna);
        for (const value of [
          null,
          'garbage',
          { kid: good.kid },
          wire(good),
          wire(malleated(good)),
          wire(await scene.sign(batch, createApprover())),
          { ...wire(await scene.sign(batch, createApprover())), kid: ben.kid },
          wire(await scene.sign(other, ben)),
          wire(await scene.sign({ ...batch, size: 2 }, ben)),
          wire(await scene.sign({ ...batch, trustDomain: 'staging.example' }, ben)),
        ])
          await handle.signal(messages.approveSignal, value as messages.ApprovalMessage);
        await stack.client.connection.workflowService.signalWorkflowExecution({
          namespace: 'default',
          workflowExecution: { workflowId: batch.workflowId },
          signalName: 'approveSignal',
          input: { payloads: [{ metadata: { encoding: bytes('who/knows') }, data: bytes('{"broken') }] },
        });
        await handle.signal(messages.cancel, {} as never);
        await assert.rejects(handle.executeUpdate(messages.approve, { args: [wire(await scene.sign(other, ben))] }));
        assert.deepEqual(
          (await handle.query(messages.status)).approvals.map(({ kid }) => kid),
          [anna.kid],
        );
        await scene.isHeld(id);
      });
      const before = scene.boots('node-1');
      await handle.executeUpdate(messages.approve, { args: [wire(await scene.sign(batch, ben))] });
      assert.equal((await scene.end(id)).state, 'done');
      assert.equal(scene.boots('node-1'), before + 1);
    });

    it('activities completed by id and by token with what is not so: workflows repeat it, nothing is released', async () => {
      const scene = the();
      const { stack } = scene;
      const { client } = stack;
      const leaf = { node: 'node-2', reason: 'believe me' };
      const batch = await scene.hold([leaf]);
      const id = await scene.put(batch, leaf);
      await scene.nothingHappens(async () => {
        const waiting = await pendingOf(batch.workflowId, 'awaitDecision');
        await client.activity.complete({ workflowId: batch.workflowId, activityId: waiting }, approvedFacts(batch));
        const again = await pendingOf(batch.workflowId, 'awaitDecision', waiting);
        await scene.isHeld(id);
        // By token: a worker of his own on the queue takes the task that the true one, which he kills, would have had.
        const back = stack.kill('control');
        await completeAsWorker(batch, again);
        await back;
        await pendingOf(batch.workflowId, 'awaitDecision', again);
        await scene.isHeld(id);
        // Whoever asked for the reboot is told that it is done. It is not.
        const [run = ''] = id.split(/\/(?=[^/]+\/[^/]+$)/);
        const asked = await pendingOf(run, 'awaitCommand');
        await client.activity.complete({ workflowId: run, activityId: asked }, { state: 'done', error: '' });
        const told = (await client.workflow.getHandle(run).result()) as { states: Record<string, number> };
        assert.deepEqual(told.states, { done: 1 });
        const [row] = await scene.query('select state from node_commands where id = $1', id);
        assert.equal(row?.['state'], 0, 'commands show asks the database');
      });
    });

    it('terminated, started with keys of his own, reset: stuck says so, it goes on, and the machine runs it once', async () => {
      const scene = the();
      const { stack, anna, ben } = scene;
      const { client } = stack;
      const leaf = { node: 'node-3', reason: 'once' };
      const batch = await scene.hold([leaf]);
      const id = await scene.put(batch, leaf);
      const [before] = [scene.boots('node-3')];
      await scene.approve(batch, anna);
      // What would start it again he may pause as well.
      const reconciler = client.schedule.getHandle('bc-reconcile-batches');
      await reconciler.pause('an attack');
      const paused = (await stack.api.listStuck()).find(({ subject }) => subject === 'schedule bc-reconcile-batches');
      assert.equal(paused?.waitsFor, 'someone to let it go on: it is paused (an attack)');
      await handleOf(batch).terminate('an attack');
      const stuck = (waitsFor: RegExp) =>
        eventually(`${batch.workflowId} in the list, which waits for ${waitsFor}`, async () =>
          (await stack.api.listStuck()).find((item) => item.subject === batch.workflowId && waitsFor.test(item.waitsFor)),
        );
      await stuck(/^a workflow: its last one ended as TERMINATED$/);
      const own = { batchId: batch.batchId, approverKeys: [createApprover().kid], threshold: 0 };
      const forged = await client.workflow.start('approveBatch', {
        workflowId: batch.workflowId,
        taskQueue: taskQueues.control,
        args: [own],
      });
      await assert.rejects(forged.result());
      const item = await stuck(/^a workflow: its last one ended as FAILED \(.*approverKeys/);
      assert.match(item.help, /^bc-reconcile-batches starts one within a minute/);
      await scene.isHeld(id);

      await reconciler.unpause();
      await reconciler.trigger();
      await eventually('it is watched again', async () => (await handleOf(batch).describe()).status.name === 'RUNNING', patienceMs);
      await scene.approve(batch, ben);
      assert.equal((await scene.end(id)).state, 'done');
      assert.equal(scene.boots('node-3'), before + 1);

      // Back to before the release; and whoever asked for the reboot, back to before he asked.
      const [run = ''] = id.split(/\/(?=[^/]+\/[^/]+$)/);
      await eventually('the end of the batch', async () => (await handleOf(batch).describe()).status.name === 'COMPLETED', patienceMs);
      for (const workflowId of [batch.workflowId, run]) await resetToBeginning(workflowId);
      for (const workflowId of [batch.workflowId, run])
        assert.equal(await client.workflow.getHandle(workflowId).result().then(outcomeOf), 'done once', workflowId);
      assert.deepEqual(
        (await stack.api.getCommands(run)).map((one) => one.id),
        [id],
        'the same steps ask for the same command',
      );
      // A run of its own asks for another one, which is signed: the batch is approved. The machine has used the leaf.
      await scene.refusedByMachine(await scene.put(batch, leaf), /^batch-unapproved: leaf-used: command \S+ used this operation of batch/);
      assert.equal(scene.boots('node-3'), before + 1);
    });

    async function completeAsWorker(batch: Held, activityId: string): Promise<void> {
      const { connection, options } = the().stack.client;
      const service = connection.workflowService;
      const failure = { message: 'not the one', applicationFailureInfo: { type: 'GIVEN_BACK' } };
      const his = { namespace: 'default', identity: 'his own worker' };
      const taskToken = await eventually(
        'a task of the batch',
        async () => {
          const poll = () => service.pollActivityTaskQueue({ ...his, taskQueue: { name: taskQueues.control } });
          const task = await connection.withDeadline(Date.now() + 20_000, poll);
          if (task.workflowExecution?.workflowId === batch.workflowId && task.activityId === activityId) return task.taskToken;
          // Another one's: given back, so that it is tried again at once.
          if (task.taskToken.length > 0) await service.respondActivityTaskFailed({ ...his, taskToken: task.taskToken, failure });
          return false;
        },
        patienceMs,
      );
      const payloads = await encodeToPayloads(options.loadedDataConverter, approvedFacts(batch));
      await service.respondActivityTaskCompleted({ ...his, taskToken, result: { payloads: payloads ?? [] } });
    }

    async function resetToBeginning(workflowId: string): Promise<void> {
      const { client } = the().stack;
      const { events } = await client.workflow.getHandle(workflowId).fetchHistory();
      const first = events?.find(({ workflowTaskCompletedEventAttributes: done }) => done !== null && done !== undefined);
      await client.connection.workflowService.resetWorkflowExecution({
        namespace: 'default',
        workflowExecution: { workflowId },
        reason: 'an attack',
        workflowTaskFinishEventId: first?.eventId ?? null,
        requestId: `reset-${workflowId}`,
      });
    }
  });
}
