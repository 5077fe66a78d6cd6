/** runCommand, revokeIdentity and the reconcilers on a real server. */
import assert from 'node:assert/strict';
import { WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';
import { ActivityFailure, ApplicationFailure, CancelledFailure } from '@temporalio/common';
import { createCommandControlActivities } from '../../activities/commands-control.ts';
import { createCommandSigningActivities } from '../../activities/commands-signing.ts';
import { createIdentityActivities } from '../../activities/identities.ts';
import { createSpecSigningActivities } from '../../activities/spec-signing.ts';
import { createSshSigningActivities } from '../../activities/ssh-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import { hour } from '../../domain/time.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { createRelay } from '../../workers/relay.ts';
import { parseRunCommand, type RunCommandResult, type RunCommandStatus } from '../../workflows/run-command/messages.ts';
import { activitiesAlone, sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { recordingLog } from '../services/support.ts';
import { CommandWorld } from './command-world.ts';
import { type RunningWorkers, running } from './rotation-rig.ts';

const input = { kind: 'inventory.refresh', actor: 'ann' } as const;

async function failureOf(handle: WorkflowHandle): Promise<{ type: string | null | undefined; message: string }> {
  const error = await handle.result().then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof WorkflowFailedError, String(error));
  const cause = error.cause instanceof ActivityFailure ? error.cause.cause : error.cause;
  if (cause instanceof CancelledFailure) return { type: 'CANCELLED', message: cause.message };
  assert.ok(cause instanceof ApplicationFailure, String(cause));
  return { type: cause.type, message: cause.message };
}

describe('runCommand, revokeIdentity, reconcilers', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let unique = 0;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    await workers?.stop();
    workers = undefined;
  });

  const runWorkers = async (world: CommandWorld): Promise<void> => {
    const control = await temporal.createWorker({
      taskQueue: taskQueues.control,
      activities: { ...createCommandControlActivities(world), ...createIdentityActivities(world) },
      ...activitiesAlone,
    });
    const signing = await temporal.createWorker({
      taskQueue: taskQueues.signing,
      activities: { ...createCommandSigningActivities(world), ...createSshSigningActivities(world), ...createSpecSigningActivities(world) },
      ...activitiesAlone,
    });
    workers = running([control, signing]);
  };
  const start = (args: unknown): Promise<WorkflowHandle> => {
    unique += 1;
    return temporal.client.workflow.start('runCommand', {
      workflowId: `command/test-${unique}-${process.pid}`,
      taskQueue: taskQueues.control,
      args: [args],
    });
  };
  const until = async (holds: () => boolean | Promise<boolean>): Promise<void> => {
    while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 25));
  };

  it('waits for a few nodes by an activity each, whose id is the command id; the relay completes them', async () => {
    const world = new CommandWorld(3);
    await runWorkers(world);
    const handle = await start({ ...input, nodes: ['node-00001', 'node-00002'] });
    await until(() => world.waits.size === 2);
    const pending = (await handle.describe()).raw.pendingActivities?.map((activity) => activity.activityId).sort();
    assert.deepEqual(pending, [...world.entries.keys()].sort());
    const [first, second] = [...world.entries.keys()];
    world.end(String(first), 'done');
    world.end(String(second), 'failed', 'no such sensor');
    const relay = createRelay({ outbox: world.outbox, completions: temporal.client.activity, log: recordingLog() });
    assert.equal(await relay.deliver(), 2);
    const result = (await handle.result()) as RunCommandResult;
    assert.deepEqual(result.states, { done: 1, failed: 1 });
    assert.deepEqual(result.failures, [{ nodeId: 'node-00002', commandId: second, state: 'failed', error: 'no such sensor' }]);
    assert.equal(world.due.size, 0);
    const { events } = await handle.fetchHistory();
    assert.ok((events?.length ?? 0) <= 30, `${events?.length} events`);
  });

  it('a lost completion heals at the next attempt', async () => {
    const world = new CommandWorld(1);
    await runWorkers(world);
    const handle = await start({ ...input, nodes: ['node-00001'] });
    await until(() => world.waits.size === 1);
    world.endAll('done');
    world.due.clear();
    const [wait] = world.waits.values();
    // What a heartbeat timeout brings about by itself, a minute later: the attempt is over, the next one reads the table.
    await temporal.client.activity.fail(
      { workflowId: handle.workflowId, activityId: String(wait?.activityId) },
      new Error('nobody heartbeats'),
    );
    const result = (await handle.result()) as RunCommandResult;
    assert.deepEqual(result.states, { done: 1 });
  });

  it('a lost completion is found by the sweep', async () => {
    const world = new CommandWorld(1);
    await runWorkers(world);
    const handle = await start({ ...input, nodes: ['node-00001'] });
    await until(() => world.waits.size === 1);
    world.endAll('done');
    world.due.clear();
    const log = recordingLog();
    const relay = createRelay({ outbox: world.outbox, completions: temporal.client.activity, log });
    await relay.sweep();
    assert.deepEqual(
      log.lines.map((line) => line.message),
      ['completions were lost and are queued again'],
    );
    await relay.deliver();
    assert.deepEqual(((await handle.result()) as RunCommandResult).states, { done: 1 });
  });

  it('H-18 a thousand nodes cost the same history as fifty: ranges of 500, one wait', async () => {
    const counts: number[] = [];
    for (const nodes of [50, 1_200]) {
      const world = new CommandWorld(nodes);
      await runWorkers(world);
      const handle = await start({ ...input, nodes: 'all' });
      await until(() => world.entries.size === nodes);
      world.endAll('done');
      const result = (await handle.result()) as RunCommandResult;
      assert.deepEqual(result.states, { done: nodes });
      assert.ok(world.ranges.every((size) => size <= 500));
      counts.push((await handle.fetchHistory()).events?.length ?? 0);
      await workers?.stop();
    }
    assert.equal(counts[0], counts[1]);
  });

  it('an enqueue that loses its answer sends nothing twice and goes on where it was', async () => {
    const world = new CommandWorld(1_100);
    let failed = false;
    world.before = (call) => {
      if (call !== 'queue.enqueued' || failed || world.ranges.length < 2) return;
      failed = true;
      throw new ControlError('UNAVAILABLE', 'the answer is lost');
    };
    await runWorkers(world);
    const handle = await start({ ...input, nodes: 'all' });
    await until(() => world.entries.size === 1_100);
    world.endAll('done');
    assert.deepEqual(((await handle.result()) as RunCommandResult).states, { done: 1_100 });
  });

  it('a cancelled run cancels the commands that have not ended', async () => {
    const world = new CommandWorld(2);
    await runWorkers(world);
    const handle = await start({ ...input, nodes: ['node-00001', 'node-00002'] });
    await until(() => world.waits.size === 2);
    world.end(String([...world.entries.keys()][0]), 'done');
    await handle.cancel();
    assert.equal((await failureOf(handle)).type, 'CANCELLED');
    assert.deepEqual(
      [...world.entries.values()].map((entry) => entry.state),
      ['done', 'cancelled'],
    );
  });

  it('an end that someone else made up is counted as unknown', async () => {
    const world = new CommandWorld(1);
    await runWorkers(world);
    const handle = await start({ ...input, nodes: ['node-00001'] });
    await until(() => world.waits.size === 1);
    const [wait] = world.waits.values();
    await temporal.client.activity.complete(
      { workflowId: handle.workflowId, activityId: String(wait?.activityId) },
      { state: 'wonderful' },
    );
    assert.deepEqual(((await handle.result()) as RunCommandResult).states, { unknown: 1 });
  });

  for (const [name, value, type, message] of [
    ['no input', undefined, 'INVALID_INPUT', /^runCommand: expected an object/],
    [
      'an unknown kind',
      { ...input, kind: 'node.explode', nodes: 'all' },
      'INVALID_INPUT',
      /kind must be one of inventory\.refresh, .*, got node\.explode/,
    ],
    ['an unknown node', { ...input, nodes: ['node-9'] }, 'NOT_FOUND', /^no node is called node-9$/],
    [
      'a payload of another kind',
      { ...input, nodes: ['node-00001'], payload: { unit: 'x' } },
      'INVALID_INPUT',
      /^payload of inventory\.refresh is not a bettercompute\.agent\.v1\.InventoryRefresh: .*unit/,
    ],
  ] as const) {
    it(`refuses ${name} once and for all`, async () => {
      await runWorkers(new CommandWorld(1));
      const failure = await failureOf(await start(value));
      assert.equal(failure.type, type);
      assert.match(failure.message, message);
    });
  }

  it('reads its input strictly', () => {
    const parsed = parseRunCommand({ ...input, nodes: ['b', 'a', 'b'] });
    assert.deepEqual(parsed.nodes, ['a', 'b']);
    assert.equal(parsed.deadlineMs, 3_600_000 + 60_000);
    for (const [nodes, says] of [
      [[], /an empty list/],
      ['some', /nodes must be a list of node ids that is not empty, or "all", got a string/],
      [[''], /an empty text where a node id belongs/],
      [Array.from({ length: 2_001 }, (_, i) => `n${i}`), /lists 2001 nodes, at most 2000/],
    ] as const) {
      assert.throws(() => parseRunCommand({ ...input, nodes }), says);
    }
    assert.throws(
      () => parseRunCommand({ ...input, nodes: 'all', deadlineMs: 0.5 }),
      /deadlineMs must be a whole number of milliseconds from 1000 to 604800000, got 0\.5/,
    );
  });

  it('revokeIdentity ends when the last session is gone; a lost answer revokes no second time', async () => {
    const world = new CommandWorld(1);
    let failed = false;
    world.before = (call) => {
      if (call !== 'identities.revoke' || failed) return;
      failed = true;
      throw new ControlError('UNAVAILABLE', 'the answer is lost');
    };
    await runWorkers(world);
    const nodeId = 'node-00001';
    const words = { actor: 'ann', reason: 'stolen' };
    const handle = await temporal.client.workflow.start('revokeIdentity', {
      workflowId: workflowIds.revokeIdentity(nodeId),
      taskQueue: taskQueues.control,
      args: [{ nodeId, ...words }],
    });
    await until(async () => ((await handle.query<{ phase: string }>('status').catch(() => undefined))?.phase ?? '') === 'waiting-sessions');
    assert.deepEqual(world.audited, []);
    world.openSessions = 0;
    assert.deepEqual(await handle.result(), { nodeId, certificates: 2 });
    assert.equal(world.audited.length, 1);
  });

  it('revokeIdentity runs under the id of its node only', async () => {
    await runWorkers(new CommandWorld(1));
    const handle = await temporal.client.workflow.start('revokeIdentity', {
      workflowId: 'node/other/revoke',
      taskQueue: taskQueues.control,
      args: [{ nodeId: 'node-00001', actor: 'a', reason: 'b' }],
    });
    assert.deepEqual(await failureOf(handle), {
      type: 'INVALID_INPUT',
      message: 'revoking node-00001 runs under the workflow id node/node-00001/revoke, not node/other/revoke',
    });
  });

  it('SSH-006 revokeSshCertificate repeats its one step until it is done, and answers with the generation that lists the serial', async () => {
    const world = new CommandWorld(1);
    let failed = false;
    world.before = (call) => {
      if (call !== 'ssh.revoke' || failed) return;
      failed = true;
      throw new ControlError('UNAVAILABLE', 'the answer is lost');
    };
    await runWorkers(world);
    const words = { actor: 'ann', reason: 'laptop lost' };
    const start = (workflowId: string, serial: string) =>
      temporal.client.workflow.start('revokeSshCertificate', { workflowId, taskQueue: taskQueues.control, args: [{ serial, ...words }] });
    const handle = await start(workflowIds.revokeSshCertificate('4711'), '4711');
    assert.deepEqual(await handle.result(), { nodeId: 'node-00001', generation: 7 });
    assert.equal(world.revokes, 2);
    assert.deepEqual(await failureOf(await start('ssh/1/revoke', '2')), {
      type: 'INVALID_INPUT',
      message: 'taking 2 back runs under the workflow id ssh/2/revoke, not ssh/1/revoke',
    });
    assert.deepEqual(await failureOf(await start('ssh/0x1/revoke', '0x1')), {
      type: 'INVALID_INPUT',
      message: 'revokeSshCertificate: serial must be a whole number in digits, not "0x1"',
    });
    assert.equal((await failureOf(await start(workflowIds.revokeSshCertificate('404'), '404'))).type, 'NOT_FOUND');
  });

  it('SEC-007 setNodeCredential repeats its one step until it is done; bad input and another id are refused in words', async () => {
    const world = new CommandWorld(1);
    let failed = false;
    world.before = (call) => {
      if (call !== 'credentials.set' || failed) return;
      failed = true;
      throw new ControlError('UNAVAILABLE', 'the answer is lost');
    };
    await runWorkers(world);
    const words = { actor: 'ann', reason: 'joins eu-1' };
    const order = { nodeId: 'node-00001', name: 'k8s-join', ref: 'secret://k8s/eu-1/token' };
    const start = (changes: Record<string, unknown>, workflowId = workflowIds.setNodeCredential(order.nodeId, 'k8s-join')) =>
      temporal.client.workflow.start('setNodeCredential', {
        workflowId,
        taskQueue: taskQueues.control,
        args: [{ ...order, ...words, ...changes }],
      });
    assert.deepEqual(await (await start({})).result(), { generation: 8 });
    assert.deepEqual(
      world.asked,
      Array.from({ length: 2 }, () => 'k8s-join of node-00001 from secret://k8s/eu-1/token'),
    );
    assert.deepEqual(await (await start({ ref: null })).result(), { generation: 8 });
    const refusals: readonly [Record<string, unknown>, RegExp][] = [
      [{ ref: 'abcdef.0123456789abcdef' }, /ref must be a reference to a secret/],
      [{ ref: undefined }, /ref must be a reference to a secret .*or null to take it away/],
      [{ name: 'access' }, /name must be one of k8s-join, telemetry, got access/],
      [{ name: 'telemetry' }, /a credential of node-00001 is set under the workflow id node\/node-00001\/credential\/telemetry, not /],
    ];
    for (const [changes, message] of refusals) {
      const failure = await failureOf(await start(changes));
      assert.equal(failure.type, 'INVALID_INPUT');
      assert.match(failure.message, message);
    }
  });

  it('the reconcilers take no input', async () => {
    const world = new CommandWorld(1);
    await runWorkers(world);
    const run = (type: string): Promise<unknown> =>
      temporal.client.workflow.execute(type, { workflowId: `test-${type}`, taskQueue: taskQueues.control });
    assert.deepEqual(await run('resignExpiring'), { commands: 2, specs: 1 });
    assert.deepEqual(
      world.asked,
      [`sign what ends before ${1_000_000 + hour}`, 'logins'],
      'an hour by the clock of the database, and what must not wait first',
    );
    assert.deepEqual(await run('reconcileCommands'), { expired: 3, completionsQueued: 1, pruned: 2 });
  });

  it('shows what it does while it runs', async () => {
    const world = new CommandWorld(1);
    await runWorkers(world);
    const handle = await start({ ...input, nodes: ['node-00001'] });
    await until(() => world.waits.size === 1);
    const status = await handle.query<RunCommandStatus>('status');
    assert.deepEqual(
      { phase: status.phase, enqueued: status.enqueued, finished: status.finished },
      { phase: 'running', enqueued: 1, finished: 0 },
    );
    assert.deepEqual((await handle.describe()).searchAttributes['BcWaitingOn'], ['node-00001']);
    await handle.cancel();
    await failureOf(handle);
  });
});
