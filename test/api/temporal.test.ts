/** The CLI's rotation port and the API's workflow calls against a real Temporal server with the real workflows. */
import assert from 'node:assert/strict';
import { ApplicationFailure } from '@temporalio/common';
import { createOperatorWorkflows } from '../../api/temporal-workflows.ts';
import { createRotationPort } from '../../cli/temporal-rotation.ts';
import type { ControlError } from '../../domain/errors.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { eventually } from '../harness/eventually.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { type RunningWorkers, running, runRotationWorkers } from '../workflows/rotation-rig.ts';
import { RotationWorld } from '../workflows/rotation-world.ts';

const shortTimes = { overlapMs: 500, dropMarginMs: 10, workerLifetimeMs: 400 };
const words = { actor: 'ann', reason: 'rack 4 is off' };
const refusal = (code: string, message: RegExp) => (error: ControlError) => {
  assert.equal(error.code, code, error.message);
  assert.match(error.message, message);
  return true;
};

describe('over a real Temporal server', function () {
  this.timeout(120_000);
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    for (const id of [
      workflowIds.rotateCommandRoot,
      workflowIds.revokeIdentity('node-1'),
      workflowIds.revokeSshCertificate('4711'),
      workflowIds.runCommand('once'),
      workflowIds.rebootNodes('once'),
      workflowIds.enrolment('node-1'),
    ]) {
      await temporal.client.workflow
        .getHandle(id)
        .terminate('the test is over')
        .catch(() => undefined);
    }
    await workers?.stop();
    workers = undefined;
  });

  const begin = async (): Promise<ReturnType<typeof createRotationPort>> => {
    const world = new RotationWorld({ 'node-1': {}, 'node-mute': { trustVersion: null, obedient: false } });
    world.times = shortTimes;
    workers = await runRotationWorkers(temporal, world);
    return createRotationPort(temporal.client);
  };

  it('asks the run of an enrolment to end, and never that of another one of the same node', async () => {
    const calls = createOperatorWorkflows(async () => temporal.client, Date.now);
    const [mine, other] = [`enr-${'a'.repeat(24)}`, `enr-${'b'.repeat(24)}`];
    await calls.cancelEnrolment({ nodeId: 'node-1', enrolmentId: mine });
    const { workflowId } = await calls.startEnrolment({ kind: 'reenrol', nodeId: 'node-1', enrolmentId: mine });
    // Nobody carries it out here: what was asked of it stands in its history.
    const isAsked = async (): Promise<boolean> => {
      const { events } = await temporal.client.workflow.getHandle(workflowId).fetchHistory();
      return events?.some(({ workflowExecutionCancelRequestedEventAttributes: asked }) => asked != null) ?? false;
    };
    await calls.cancelEnrolment({ nodeId: 'node-1', enrolmentId: other });
    assert.equal(await isAsked(), false);
    await calls.cancelEnrolment({ nodeId: 'node-1', enrolmentId: mine });
    assert.equal(await isAsked(), true);
  });

  it('starts one rotation, shows whom it waits for, lets an operator decide, and tells its end', async () => {
    const rotation = await begin();
    await rotation.start({ actor: 'ann', reason: 'yearly' });
    await assert.rejects(rotation.start({ actor: 'bob', reason: '' }), refusal('INVALID_STATE', /^a rotation is already running$/));
    const waiting = await eventually('it waits for the fleet', async () => {
      const run = await rotation.find();
      return run.status?.phase === 'waiting-fleet' && run.status.behind !== null && run;
    });
    assert.deepEqual([waiting.state, waiting.status?.startedBy, waiting.status?.behind?.names], ['running', 'ann', ['node-mute']]);

    await assert.rejects(rotation.exclude({ node: 'node-nobody', ...words }), refusal('NOT_FOUND', /^no node node-nobody is known$/));
    await assert.rejects(
      rotation.force({ phase: 'drop' as 'fleet', ...words }),
      refusal('INVALID_STATE', /^force does not open the wait before the drop/),
    );
    await assert.rejects(rotation.abort({ actor: 'ann', reason: '' }), refusal('INVALID_INPUT', /reason/));
    await rotation.pause(words);
    await eventually('it is paused', async () => (await rotation.find()).status?.paused !== null);
    await rotation.resume({ actor: 'ann' });
    await rotation.exclude({ node: 'node-mute', ...words });

    const ended = await eventually(
      'it ends',
      async () => {
        const run = await rotation.find();
        return run.state !== 'running' && run;
      },
      90_000,
    );
    assert.deepEqual([ended.state, ended.result?.outcome, ended.failure], ['completed', 'dropped', null]);
    assert.ok(ended.closedAt !== null);
    await assert.rejects(rotation.abort(words), refusal('NOT_FOUND', /^the rotation is not running$/));
  });

  it('lists a rotation that waits as stuck: since when, on whom, and what helps', async () => {
    const rotation = await begin();
    await rotation.start({ actor: 'ann', reason: '' });
    const workflows = createOperatorWorkflows(async () => temporal.client, Date.now);
    const item = await eventually('it is in the list with its reason', async () => {
      const found = (await workflows.listStuck()).find(({ subject }) => subject === workflowIds.rotateCommandRoot);
      return found !== undefined && /node-mute/.test(found.waitsFor) && found;
    });
    assert.equal(item.kind, 'workflow');
    assert.match(
      item.waitsFor,
      /^waiting-fleet: 1 of 2 connected node\(s\) have not applied it \(node-mute does not report \(daemon 0\.3\.0\)\) \(\w+, attempt \d+\)$/,
    );
    assert.match(item.help, /rotation exclude <node>|rotation status/);
    assert.ok(item.since !== null && item.since > 0);
  });

  it('lists a command whose enqueueing fails and is tried again after seconds, with the reason', async () => {
    const refuse = async (): Promise<never> => {
      throw ApplicationFailure.create({ message: 'the key bundle at hand is generation 2, the deployment runs 4', type: 'STALE_BUNDLE' });
    };
    const control = await temporal.createWorker({ taskQueue: taskQueues.control });
    const signing = await temporal.createWorker({
      taskQueue: taskQueues.signing,
      activities: { enqueueCommands: refuse },
      workflowBundle: undefined as never,
    });
    workers = running([control, signing]);
    // An operator's clock, so that the test need not wait for it.
    const workflows = createOperatorWorkflows(
      async () => temporal.client,
      () => Date.now() + 11_000,
    );
    await workflows.startCommands({ unique: 'once', kind: 'inventory.refresh', nodes: ['node-1'], payload: {}, actor: 'ann' });
    const item = await eventually('it is in the list with its reason', async () => {
      const found = (await workflows.listStuck()).find(({ subject }) => subject === 'command/once');
      return found !== undefined && /attempt [2-9]/.test(found.waitsFor) && found;
    });
    assert.match(
      item.waitsFor,
      /^enqueueing: the key bundle at hand is generation 2, the deployment runs 4 \(enqueueCommands, attempt \d+\)$/,
    );
    assert.equal(item.help, 'temporal workflow describe --workflow-id command/once');
  });

  it('lists what no worker takes: a workflow whose code waits, and a step of one that runs', async () => {
    const workflows = createOperatorWorkflows(
      async () => temporal.client,
      () => Date.now() + 11_000,
    );
    await workflows.startCommands({ unique: 'once', kind: 'inventory.refresh', nodes: ['node-1'], payload: {}, actor: 'ann' });
    const waitsFor = (what: RegExp): Promise<unknown> =>
      eventually(`it waits for ${what}`, async () =>
        (await workflows.listStuck()).some((item) => item.subject === 'command/once' && what.test(item.waitsFor)),
      );
    await waitsFor(/^no worker of bc-control takes it \(its code, attempt 1\)$/);
    workers = running([await temporal.createWorker({ taskQueue: taskQueues.control })]);
    await waitsFor(/^enqueueing: no worker takes it \(enqueueCommands, attempt 1\)$/);
  });

  it('shows what the server knows when no worker runs', async () => {
    await temporal.client.workflow.start('rotateCommandRoot', { workflowId: workflowIds.rotateCommandRoot, taskQueue: taskQueues.control });
    const run = await createRotationPort(temporal.client).find();
    assert.deepEqual([run.state, run.status, run.result], ['running', null, null]);
  });

  it('starts a revocation and a command with the ids everybody knows, each once', async () => {
    const workflows = createOperatorWorkflows(async () => temporal.client, Date.now);
    const revoked = await workflows.startRevoke({ nodeId: 'node-1', ...words });
    assert.equal(revoked.workflowId, 'node/node-1/revoke');
    await assert.rejects(
      workflows.startRevoke({ nodeId: 'node-1', ...words }),
      refusal('INVALID_STATE', /^workflow node\/node-1\/revoke is already running$/),
    );
    const takenBack = await workflows.startSshRevoke({ serial: '4711', ...words });
    assert.equal(takenBack.workflowId, workflowIds.revokeSshCertificate('4711'));
    const started = await workflows.startCommands({
      unique: 'once',
      kind: 'inventory.refresh',
      nodes: ['node-1'],
      payload: {},
      actor: 'ann',
    });
    assert.equal(started.workflowId, 'command/once');
    const described = await temporal.client.workflow.getHandle(started.workflowId).describe();
    assert.equal(described.taskQueue, taskQueues.control);
    assert.equal(await described.staticSummary(), 'Run one command on one or many nodes');
    const waves = { size: 1, maxFailures: 0, pauseMs: 0, healthGate: true };
    const rebooting = await workflows.startReboots({ unique: 'once', nodes: ['node-1'], reason: 'kernel', actor: 'ann', waves });
    assert.equal(rebooting.workflowId, 'reboot/once');
    const reboot = await temporal.client.workflow.getHandle(rebooting.workflowId).describe();
    assert.deepEqual(
      [reboot.type, await reboot.staticSummary()],
      ['rebootNodes', 'Reboot machines in waves, after their approvers have signed'],
    );
  });
});
