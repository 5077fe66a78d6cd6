/** What operators do to a running rotation, and what anyone who may write to the namespace can do to it. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { WorkflowExecutionAlreadyStartedError, WorkflowFailedError, WorkflowUpdateFailedError } from '@temporalio/client';
import { ActivityFailure, ApplicationFailure } from '@temporalio/common';
import { ControlError } from '../../domain/errors.ts';
import { findTemporal } from '../../scripts/engines/temporal.mjs';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import * as messages from '../../workflows/rotate-command-root/messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type RotationHandle, type RunningWorkers, runRotationWorkers, startRotation, statusOf, untilStatus } from './rotation-rig.ts';
import { RotationWorld } from './rotation-world.ts';

const words = { actor: 'ann', reason: 'rack 4 is off' };
const shortTimes = { overlapMs: 500, dropMarginMs: 10, workerLifetimeMs: 400 };
const run = promisify(execFile);

async function refused(call: Promise<unknown>): Promise<ApplicationFailure> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof WorkflowUpdateFailedError, String(error));
  const cause = error.cause instanceof ActivityFailure ? error.cause.cause : error.cause;
  assert.ok(cause instanceof ApplicationFailure, String(cause));
  return cause;
}

describe('rotateCommandRoot: operators', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let cli: string;

  before(async () => {
    temporal = await sharedTemporal();
    cli = await findTemporal();
  });
  afterEach(async () => {
    await temporal.client.workflow
      .getHandle(workflowIds.rotateCommandRoot)
      .terminate('the test is over')
      .catch(() => undefined);
    await workers?.stop();
    workers = undefined;
  });

  const begin = async (world: RotationWorld): Promise<RotationHandle> => {
    world.times = shortTimes;
    workers = await runRotationWorkers(temporal, world, { activitiesOnly: true });
    return startRotation(temporal.client);
  };
  const waitsForFleet = (handle: RotationHandle): Promise<messages.RotationStatus> =>
    untilStatus(handle, (status) => status.phase === 'waiting-fleet' && status.behind !== null);
  /** Never in the worker's process by execFileSync: it would block the worker. */
  const temporalCli = async (...args: string[]): Promise<{ code: number; text: string }> => {
    const env = { PATH: process.env['PATH'] ?? '', HOME: '/nonexistent' };
    try {
      const { stdout, stderr } = await run(cli, [...args, '--address', temporal.address], { env });
      return { code: 0, text: stdout + stderr };
    } catch (error) {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
      return { code, text: stdout + stderr };
    }
  };

  it('C03 a node that never reports is named as such; exclude lets the rotation go on, audited', async () => {
    const world = new RotationWorld({ 'node-1': {}, 'node-mute': { trustVersion: null, obedient: false } });
    const handle = await begin(world);
    const waiting = await waitsForFleet(handle);
    assert.equal(waiting.behind?.message, '1 of 2 connected node(s) have not applied it (node-mute does not report (daemon 0.3.0))');
    assert.equal(
      (await refused(handle.executeUpdate(messages.exclude, { args: [{ node: 'node-nobody', ...words }] }))).message,
      'no node node-nobody is known',
    );
    await handle.executeUpdate(messages.exclude, { args: [{ node: 'node-mute', ...words }] });
    assert.deepEqual(world.audited, [{ action: 'rotation.exclude', subject: 'node-mute', actor: 'ann', details: { approvedBy: [] } }]);
    const result = await handle.result();
    assert.equal(result.outcome, 'dropped');
    assert.equal(result.overrides, 1);
  });

  it('H-01 a fleet of nobody is no consent; H-08 a force says whom it leaves behind', async () => {
    const world = new RotationWorld({ 'node-1': { connected: false }, 'node-2': { connected: false } });
    const handle = await begin(world);
    const waiting = await waitsForFleet(handle);
    assert.equal(waiting.behind?.message, 'no connected daemon confirms trust version 2 (2 known node(s))');
    const node = world.nodes.get('node-2');
    assert.ok(node !== undefined);
    Object.assign(node, { connected: true, obedient: false });
    await handle.executeUpdate(messages.force, { args: [{ phase: 'fleet', ...words }] });
    assert.deepEqual(world.audited[0]?.details, {
      trustVersion: 2,
      connected: 1,
      behind: 1,
      nodesLeftBehind: ['node-2'],
      approvedBy: [],
    });
    await untilStatus(handle, (status) => status.phase === 'confirming');
    world.nodes.forEach((each) => Object.assign(each, { connected: true, obedient: true }));
    world.publish();
    assert.equal((await handle.result()).outcome, 'dropped');
  });

  it('a pause holds before the next step, a resume lets it go on', async () => {
    const world = new RotationWorld({ 'node-1': { obedient: false } });
    const handle = await begin(world);
    await waitsForFleet(handle);
    await handle.signal(messages.pause, words);
    await untilStatus(handle, (status) => status.paused?.actor === 'ann');
    world.nodes.forEach((node) => Object.assign(node, { obedient: true }));
    world.publish();
    await untilStatus(handle, (status) => status.phase === 'switching');
    assert.deepEqual(world.effects, ['add']);
    await handle.signal(messages.resume);
    assert.equal((await handle.result()).outcome, 'dropped');
  });

  it('a step that is refused for good holds the rotation instead of ending it', async () => {
    const world = new RotationWorld();
    let broken = true;
    world.before = (call) => {
      if (call === 'roots.switch' && broken) throw new ControlError('STALE_BUNDLE', 'this process holds an older key bundle');
    };
    const handle = await begin(world);
    const held = await untilStatus(handle, (status) => status.blocked !== null);
    assert.deepEqual(held.blocked, { code: 'STALE_BUNDLE', message: 'this process holds an older key bundle', waitsFor: 'operator' });
    assert.equal(held.phase, 'switching');
    broken = false;
    await handle.signal(messages.resume);
    assert.equal((await handle.result()).outcome, 'dropped');
  });

  it('C16 a second start is refused; another id is refused by the workflow itself', async () => {
    const world = new RotationWorld({ 'node-1': { obedient: false } });
    const handle = await begin(world);
    await waitsForFleet(handle);
    await assert.rejects(startRotation(temporal.client), WorkflowExecutionAlreadyStartedError);
    const other = await temporal.client.workflow.start('rotateCommandRoot', {
      workflowId: 'rotate-again',
      taskQueue: taskQueues.control,
      args: [],
    });
    const failure = await other.result().then(
      () => undefined,
      (error: unknown) => error,
    );
    assert.ok(failure instanceof WorkflowFailedError && failure.cause instanceof ApplicationFailure);
    assert.equal(failure.cause.type, 'INVALID_INPUT');
    assert.equal(failure.cause.message, 'rotateCommandRoot runs under the workflow id rotate-command-root only, not rotate-again');
    assert.deepEqual(world.effects, ['add']);
  });

  it('a rotation that was terminated half way is taken up by the next start', async () => {
    const world = new RotationWorld({ 'node-1': { obedient: false } });
    const first = await begin(world);
    const { rotationId } = await waitsForFleet(first);
    await first.terminate('a mistake');
    world.nodes.forEach((node) => Object.assign(node, { obedient: true }));
    world.publish();
    const result = await (await startRotation(temporal.client)).result();
    assert.equal(result.rotationId, rotationId);
    assert.deepEqual(world.effects, ['add', 'switch', 'drop']);
  });

  it('a rotation that was begun by hand is not ours: the start fails and says what to do', async () => {
    const world = new RotationWorld();
    await world.roots.add({ rotationId: 'cli/ann', refuse: async () => undefined });
    const handle = await begin(world);
    const failure = await handle.result().then(
      () => undefined,
      (error: unknown) => error,
    );
    assert.ok(failure instanceof WorkflowFailedError && failure.cause instanceof ActivityFailure);
    assert.match(
      String(failure.cause.cause?.message),
      /^rotation cli\/ann was begun by hand \(stage added\): finish or abort it with better-compute pki rotate-command-root first$/,
    );
    assert.deepEqual(world.effects, ['add']);
  });

  it('bad signals and updates from the Temporal CLI are refused or ignored, and the workflow lives', async () => {
    const world = new RotationWorld({ 'node-1': { obedient: false } });
    const handle = await begin(world);
    await waitsForFleet(handle);
    const target = ['--workflow-id', workflowIds.rotateCommandRoot];
    for (const name of ['forceSignal', 'excludeSignal', 'abortSignal', 'pause', 'resume', 'noSuchSignal']) {
      for (const input of [
        [],
        ['--input', 'null'],
        ['--input', '7'],
        ['--input', '{"actor":"x"}'],
        ['--input', '"\\u0000"', '--input-meta', 'encoding=who/knows'],
        ['--input', '{"broken', '--input-meta', 'encoding=json/plain'],
      ]) {
        await temporalCli('workflow', 'signal', ...target, '--name', name, ...input);
      }
    }
    for (const input of [
      [],
      ['--input', 'null'],
      ['--input', '{"phase":"drop","actor":"x","reason":"y"}'],
      ['--input', '{"phase":"fleet"}'],
      ['--input', 'x', '--input-meta', 'encoding=who/knows'],
    ]) {
      const answer = await temporalCli('workflow', 'update', 'execute', ...target, '--name', 'force', ...input);
      assert.equal(answer.code, 1, answer.text);
      assert.match(answer.text, /INVALID_INPUT|INVALID_STATE/);
    }
    assert.equal((await statusOf(handle)).phase, 'waiting-fleet');
    assert.equal(world.audited.length, 0);
    const good = await temporalCli(
      'workflow',
      'update',
      'execute',
      ...target,
      '--name',
      'force',
      '--input',
      JSON.stringify({ phase: 'fleet', ...words }),
    );
    assert.equal(good.code, 0, good.text);
    await untilStatus(handle, (status) => status.phase === 'confirming');
    const twin = await temporalCli(
      'workflow',
      'signal',
      ...target,
      '--name',
      'forceSignal',
      '--input',
      JSON.stringify({ phase: 'confirm', ...words }),
    );
    assert.equal(twin.code, 0, twin.text);
    assert.equal((await handle.result()).outcome, 'dropped');
    assert.deepEqual(
      world.audited.map((event) => event.subject),
      ['fleet', 'confirm'],
    );
  });

  it('shows its phase, who it waits for and the command that helps, in attributes and details', async () => {
    const world = new RotationWorld({ 'node-1': {}, 'node-late': { obedient: false } });
    const handle = await begin(world);
    await waitsForFleet(handle);
    const metadata = await temporalCli('workflow', 'metadata', '--workflow-id', workflowIds.rotateCommandRoot);
    assert.match(metadata.text, /waiting-fleet/);
    assert.match(metadata.text, /node-late/);
    assert.match(metadata.text, /better-compute rotation exclude/);
    const { searchAttributes } = await handle.describe();
    // Also where the starter gave no static summary, as the command line does not.
    assert.deepEqual(searchAttributes['BcSummary'], [messages.staticSummary]);
    assert.deepEqual(searchAttributes['BcPhase'], ['waiting-fleet']);
    assert.deepEqual(searchAttributes['BcWaitingOn'], ['node-late']);
    assert.deepEqual(searchAttributes['BcBehind'], [1]);
    const lastFailure = async (): Promise<string | null | undefined> =>
      (await handle.describe()).raw.pendingActivities?.find((activity) => activity.activityType?.name === 'awaitFleet')?.lastFailure
        ?.message;
    let message: string | null | undefined;
    while (message === undefined || message === null) message = await lastFailure();
    assert.equal(message, '1 of 2 connected node(s) have not applied it (node-late at 1)');
  });
});
