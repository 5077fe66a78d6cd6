/** Our own producers of destructive commands: a batch first, wherever approvers guard the fleet. */
import assert from 'node:assert/strict';
import { WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';
import { ActivityFailure, ApplicationFailure } from '@temporalio/common';
import { createBatchProducerActivities } from '../../activities/batch-producers.ts';
import { createBatchControlActivities } from '../../activities/batches-control.ts';
import { createBatchSigningActivities } from '../../activities/batches-signing.ts';
import { createCommandControlActivities } from '../../activities/commands-control.ts';
import { createCommandSigningActivities } from '../../activities/commands-signing.ts';
import { commandKinds } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import { taskQueues } from '../../temporal.config.ts';
import { parseRebootNodes } from '../../workflows/reboot-nodes/messages.ts';
import type { RunCommandResult } from '../../workflows/run-command/messages.ts';
import { activitiesAlone, sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { createApprover, setOf } from './approvers.ts';
import { BatchWorld } from './batch-world.ts';
import { CommandWorld } from './command-world.ts';
import { type RunningWorkers, running } from './rotation-rig.ts';

const approvers = setOf([createApprover(), createApprover()], 2);
const until = async (holds: () => boolean): Promise<void> => {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 25));
};

describe('producers of destructive commands', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let commands: CommandWorld;
  let batches: BatchWorld;
  let unique = 0;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    for (const id of batches.stored.keys())
      await temporal.client.workflow
        .getHandle(`batch/${id}`)
        .terminate('over')
        .catch(() => undefined);
    await workers?.stop();
    workers = undefined;
  });

  const runWorkers = async (nodes: number): Promise<void> => {
    commands = new CommandWorld(nodes);
    commands.approvers = approvers;
    batches = new BatchWorld();
    commands.before = (call) => {
      if (call !== 'producers.create') return;
      for (const [id, { leaves }] of commands.batches) if (!batches.stored.has(id)) batches.add(id, { size: leaves.length });
    };
    const control = await temporal.createWorker({
      taskQueue: taskQueues.control,
      activities: {
        ...createCommandControlActivities(commands),
        ...createBatchProducerActivities(commands),
        ...createBatchControlActivities(batches),
      },
      ...activitiesAlone,
    });
    const signing = await temporal.createWorker({
      taskQueue: taskQueues.signing,
      activities: { ...createCommandSigningActivities(commands), ...createBatchSigningActivities(batches) },
      ...activitiesAlone,
    });
    workers = running([control, signing]);
  };
  const start = (type: string, input: unknown): Promise<WorkflowHandle<() => Promise<RunCommandResult>>> => {
    unique += 1;
    return temporal.client.workflow.start<() => Promise<RunCommandResult>>(type, {
      workflowId: `${type}/p${unique}-${process.pid}`,
      taskQueue: taskQueues.control,
      args: [input] as unknown as [],
    });
  };
  const approveTheBatch = async (): Promise<string> => {
    await until(() => batches.stored.size === 1 && commands.batchOf.size > 0);
    const [id] = batches.stored.keys();
    for (const by of [0, 1]) await batches.approveByApi(by, String(id));
    return String(id);
  };

  it('BAT-030 runCommand puts a destructive kind into a batch of one bound leaf a node, and waits for it', async () => {
    await runWorkers(30);
    const handle = await start('runCommand', {
      kind: 'node.reboot',
      nodes: 'all',
      payload: { reason: 'firmware' },
      actor: 'ann',
      reason: 'firmware 7',
    });
    const id = await approveTheBatch();
    const made = commands.batches.get(id);
    assert.deepEqual([made?.leaves.length, made?.reason, made?.createdBy, made?.tenantId], [30, 'firmware 7', 'ann', 'default']);
    assert.equal(made?.leaves[0]?.payload.typeUrl, `type.googleapis.com/${commandKinds['node.reboot'].payload}`);
    assert.ok(made?.leaves.every(({ kind, payload }) => kind === 'node.reboot' && payload.value.length > 0));
    assert.deepEqual([...new Set(commands.batchOf.values())], [id], 'no command went out beside its batch');
    assert.equal(commands.batchOf.size, 30);
    await until(() => batches.sent.length === 30);
    commands.endAll('done');
    const result = await handle.result();
    assert.deepEqual([result.states, result.batchId], [{ done: 30 }, id]);
  });

  it('BAT-031 rebootNodes always makes a batch, in waves, also where no approver is asked', async () => {
    await runWorkers(3);
    commands.approvers = { ...approvers, approverKeys: [] };
    const handle = await start('rebootNodes', { nodes: ['node-00001', 'node-00003'], actor: 'ann', reason: 'kernel', delaySeconds: 5 });
    const id = await approveTheBatch();
    assert.deepEqual(commands.batches.get(id)?.waves, { percent: 10, maxFailures: 0, pauseMs: 0, healthGate: true });
    await until(() => batches.sent.length === 2);
    commands.endAll('done');
    for (const wait of commands.waits.values())
      await temporal.client.activity.complete({ workflowId: wait.workflowId, activityId: wait.activityId }, { state: 'done', error: '' });
    assert.deepEqual((await handle.result()).states, { done: 2 });
  });

  it('BAT-030 nothing is put into a batch that does no harm, or where approvers allow some without one', async () => {
    await runWorkers(30);
    const plain = await start('runCommand', { kind: 'inventory.refresh', nodes: 'all', actor: 'ann' });
    await until(() => commands.entries.size === 30);
    commands.endAll('done');
    await plain.result();
    commands.approvers = { ...approvers, unbatchedDestructivePerHour: 2 };
    const allowed = await start('runCommand', { kind: 'node.reboot', nodes: 'all', actor: 'ann' });
    await until(() => commands.entries.size === 60);
    commands.endAll('done');
    await allowed.result();
    assert.deepEqual([commands.batches.size, commands.batchOf.size], [0, 0]);
  });

  it('runs in a batch that was named, and makes none', async () => {
    await runWorkers(30);
    const handle = await start('runCommand', { kind: 'node.reboot', nodes: ['node-00001'], actor: 'ann', batchId: 'made-before' });
    await until(() => commands.waits.size === 1);
    assert.deepEqual([...commands.batchOf.values()], ['made-before']);
    assert.equal(commands.batches.size, 0);
    await handle.cancel();
    await handle.result().catch(() => undefined);
  });

  it('a repeated step makes the same batch, and a cancelled run takes its batch with it', async () => {
    await runWorkers(25);
    let failed = false;
    const follow = commands.before;
    commands.before = (call) => {
      follow(call);
      if (call !== 'producers.create' || failed) return;
      failed = true;
      throw new ControlError('UNAVAILABLE', 'the answer is lost');
    };
    const handle = await start('runCommand', { kind: 'node.reboot', nodes: 'all', actor: 'ann' });
    await until(() => commands.entries.size === 25);
    assert.equal(commands.batches.size, 1);
    const [id] = commands.batches.keys();
    await handle.cancel();
    await handle.result().catch(() => undefined);
    assert.equal((await batches.batches.read(String(id))).state, 'cancelled');
    assert.deepEqual(batches.sent, []);
  });

  it('refuses nodes of several tenants, and words that do not fit', async () => {
    await runWorkers(25);
    commands.tenants = ['default', 'other'];
    const error = await (await start('runCommand', { kind: 'node.reboot', nodes: 'all', actor: 'ann' }))
      .result()
      .catch((thrown: unknown) => thrown);
    assert.ok(error instanceof WorkflowFailedError && error.cause instanceof ActivityFailure);
    assert.ok(error.cause.cause instanceof ApplicationFailure && error.cause.cause.type === 'INVALID_INPUT');
    assert.match(error.cause.cause.message, /^the nodes belong to 2 tenants \(default, other\): run it once for each$/);
    assert.throws(
      () => parseRebootNodes({ nodes: ['a'], actor: 'ann', reason: 'x', delaySeconds: -1, waves: { size: 0, percent: 5 } }),
      /delaySeconds must be a whole number from 0 to 3600.*waves: a wave has a size or a percent/,
    );
  });
});
