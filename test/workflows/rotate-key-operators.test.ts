/** The exchange of a key and the people around it: who is waited for, what a force and an abort do, what is refused. */
import assert from 'node:assert/strict';
import { WorkflowFailedError, WorkflowUpdateFailedError } from '@temporalio/client';
import { ApplicationFailure, defineSearchAttributeKey } from '@temporalio/common';
import type { ExchangedKey } from '../../domain/rotation/key-exchanges.ts';
import * as messages from '../../workflows/rotate-key/messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { idOf, type KeyHandle, runKeyWorkers, startExchange, untilKeyStatus } from './key-rig.ts';
import { KeyWorld } from './key-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

const words = { actor: 'ann', reason: 'wrong week' };
/** Real time here: an operator has to come while something waits. */
const shortTimes = { promoteMs: 100, retireMs: 400 };
const longWait = { promoteMs: 100, retireMs: 60_000 };
const waitingOn = defineSearchAttributeKey('BcWaitingOn', 'KEYWORD_LIST');

const failureOf = async (act: Promise<unknown>): Promise<ApplicationFailure> => {
  const error = await act.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof WorkflowUpdateFailedError || error instanceof WorkflowFailedError, String(error));
  assert.ok(error.cause instanceof ApplicationFailure, String(error.cause));
  return error.cause;
};

describe('the exchange of a key: operators', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let handle: KeyHandle | undefined;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    await handle?.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    [workers, handle] = [undefined, undefined];
  });

  const begin = async (world: KeyWorld, times = shortTimes): Promise<KeyHandle> => {
    world.times = times;
    workers = await runKeyWorkers(temporal, world, { activitiesOnly: true });
    handle = await startExchange(temporal.client, world);
    return handle;
  };
  const stubborn = (key: ExchangedKey): KeyWorld => {
    const world = new KeyWorld(key);
    world.stubborn.add('worker-1');
    return world;
  };
  const isBehind = (status: messages.KeyRotationStatus): boolean => status.behind !== null;

  it('R-04 H-02 a process that does not take the next key is waited for by name, in status, details and attributes', async () => {
    const world = stubborn('ticket');
    const running = await begin(world);
    const status = await untilKeyStatus(running, isBehind);
    assert.equal(status.phase, 'waiting-processes');
    assert.equal(status.behind?.message, '1 of 2 process(es) do not run this bundle yet (worker worker-1)');
    const { currentDetails } = await running.query<{ currentDetails: string }>('__temporal_workflow_metadata');
    assert.match(
      currentDetails,
      /^\*\*waiting-processes\*\* since .*: waiting until every process runs the key bundle with the next one$/m,
    );
    assert.match(currentDetails, /^- behind: worker worker-1$/m);
    assert.match(currentDetails, /^- exec ticket key: key-1 → key-2$/m);
    assert.deepEqual((await running.describe()).typedSearchAttributes.get(waitingOn), ['worker worker-1']);
    assert.deepEqual(world.effects, ['add'], 'nothing goes on without it');
    world.stubborn.clear();
    world.follow();
    assert.equal((await running.result()).outcome, 'exchanged');
  });

  it('H-08 a force opens the gate, and the trail says whom it leaves behind', async () => {
    const world = stubborn('ticket');
    const running = await begin(world);
    await untilKeyStatus(running, isBehind);
    await running.executeUpdate(messages.force, { args: [{ phase: 'processes', ...words }] });
    await running.executeUpdate(messages.force, { args: [{ phase: 'signers', ...words }] });
    await running.executeUpdate(messages.force, { args: [{ phase: 'confirm', ...words }] });
    const result = await running.result();
    assert.deepEqual([result.outcome, result.overrides], ['exchanged', 3]);
    assert.deepEqual(world.audited[0], {
      subject: 'processes',
      actor: 'ann',
      details: { key: 'ticket', processesLeftBehind: ['worker worker-1'], approvedBy: [] },
    });
  });

  it('R-04 a force never shortens a wait for a point in time, nor opens a gate that was passed', async () => {
    const running = await begin(new KeyWorld('workload'), longWait);
    await untilKeyStatus(running, (status) => status.phase === 'waiting-retire');
    const early = await failureOf(running.executeUpdate(messages.force, { args: [{ phase: 'waiting-retire' as never, ...words }] }));
    assert.equal(early.type, 'INVALID_STATE');
    assert.equal(early.message, 'force does not shorten a wait for a point in time: until then others rely on the former key');
    const passed = await failureOf(running.executeUpdate(messages.force, { args: [{ phase: 'processes', ...words }] }));
    assert.equal(passed.message, 'the processes gate has been passed: the rotation is at waiting-retire');
  });

  for (const key of ['ticket', 'workload'] as const) {
    it(`R-05 ${key}: an abort before the promotion takes the next key out, and the former one signs on`, async () => {
      const world = stubborn(key);
      const running = await begin(world, { promoteMs: 60_000, retireMs: 400 });
      await untilKeyStatus(running, (status) => (key === 'ticket' ? isBehind(status) : status.phase === 'waiting-promote'));
      world.stubborn.clear();
      await running.executeUpdate(messages.abort, { args: [words] });
      const result = await running.result();
      assert.equal(result.outcome, 'aborted');
      assert.deepEqual(world.effects, ['add', 'retire key-2']);
      assert.deepEqual(world.keys, [{ id: 'key-1', state: 'signing', opensAt: null }]);
      assert.deepEqual(world.stagesOf(result.rotationId), ['plan', 'add', 'abort', 'confirm']);
      assert.deepEqual(world.verdictOf(result.rotationId), { problems: [], outcome: 'aborted' });
    });
  }

  it('R-05 workload: after the promotion the former key signs again, and the new one waits for its own retirement', async () => {
    const world = new KeyWorld('workload');
    const running = await begin(world, longWait);
    await untilKeyStatus(running, (status) => status.phase === 'waiting-retire');
    world.times = shortTimes;
    await running.executeUpdate(messages.abort, { args: [words] });
    const result = await running.result();
    assert.deepEqual([result.outcome, result.from, result.to], ['aborted', 'key-2', 'key-1']);
    assert.deepEqual(world.effects, ['add', 'promote', 'promote', 'retire key-2']);
    assert.deepEqual(world.keys, [{ id: 'key-1', state: 'signing', opensAt: null }]);
    assert.deepEqual(world.stagesOf(result.rotationId), ['plan', 'add', 'promote', 'abort', 'retire', 'confirm']);
    assert.deepEqual(world.verdictOf(result.rotationId), { problems: [], outcome: 'aborted' });
  });

  const beyond: readonly [key: ExchangedKey, says: RegExp][] = [
    ['ticket', /^the new key signs and the former private half is gone: let it end, then start another exchange$/],
    ['ca', /^the new certificate is there and harms nobody: let it end, or force the gate that waits$/],
  ];
  for (const [key, says] of beyond) {
    it(`R-05 ${key}: an abort beyond the point of no return is refused, in so many words`, async () => {
      const running = await begin(new KeyWorld(key), longWait);
      await untilKeyStatus(running, (status) => status.phase === 'waiting-retire');
      const refused = await failureOf(running.executeUpdate(messages.abort, { args: [words] }));
      assert.equal(refused.type, 'INVALID_STATE');
      assert.match(refused.message, says);
    });
  }

  it('R-05 an abort in the moment of the add of a certificate comes too late, and the renewal ends', async () => {
    const world = new KeyWorld('ca');
    let aborted: Promise<unknown> | undefined;
    world.before = async (call) => {
      if (call !== 'add.done') return;
      aborted ??= handle?.executeUpdate(messages.abort, { args: [words] });
      await aborted;
      throw new Error('the answer of the add is lost');
    };
    const result = await (await begin(world)).result();
    assert.equal(result.outcome, 'exchanged');
    assert.deepEqual(world.effects, ['add', 'retire key-1']);
  });

  it('holds while paused, and goes on when resumed', async () => {
    const world = stubborn('ticket');
    const running = await begin(world);
    await untilKeyStatus(running, isBehind);
    await running.signal('pause', words);
    world.stubborn.clear();
    world.follow();
    const paused = await untilKeyStatus(running, (status) => status.paused !== null && status.phase !== 'waiting-processes');
    assert.equal(paused.paused?.actor, 'ann');
    assert.deepEqual(world.effects, ['add']);
    await running.signal('resume');
    assert.equal((await running.result()).outcome, 'exchanged');
  });

  it('garbage signals change nothing, garbage updates are refused with what is wrong', async () => {
    const world = stubborn('ticket');
    const running = await begin(world);
    await untilKeyStatus(running, isBehind);
    for (const name of ['forceSignal', 'abortSignal', 'pause', 'nobodyKnowsThis']) {
      for (const value of ['garbage', { phase: 'fleet', ...words }, { actor: 7 }, null]) await running.signal(name, value);
    }
    const refused = await failureOf(running.executeUpdate('force', { args: [{ phase: 'fleet', actor: 'ann' }] }));
    assert.equal(refused.type, 'INVALID_INPUT');
    assert.match(refused.message, /^force: phase must be one of processes, signers, confirm, got fleet; reason must be a text/);
    assert.match(
      (await failureOf(running.executeUpdate('abort', { args: ['stop'] }))).message,
      /^abort: expected an object with actor, reason/,
    );
    const status = await untilKeyStatus(running, () => true);
    assert.deepEqual([status.paused, status.overrides, status.phase], [null, [], 'waiting-processes']);
  });

  const starts: readonly [what: string, workflowId: string, args: unknown[], says: RegExp][] = [
    [
      'another id',
      'my-renewal',
      [],
      /^renewCa runs under the workflow id renew-ca\/node, renew-ca\/serving, renew-ca\/internal only, not my-renewal$/,
    ],
    ['input that is none', 'renew-ca/serving', [{ ca: 'node' }], /^renewCa: ca is not a known field \(known: actor, reason\)$/],
  ];
  for (const [what, workflowId, args, says] of starts) {
    it(`a start with ${what} fails before anything happens`, async () => {
      const world = new KeyWorld('ca');
      workers = await runKeyWorkers(temporal, world, { activitiesOnly: true });
      const started = await temporal.client.workflow.start('renewCa', { workflowId, taskQueue: 'bc-control', args });
      const refused = await failureOf(started.result());
      assert.equal(refused.type, 'INVALID_INPUT');
      assert.match(refused.message, says);
      assert.deepEqual(world.effects, []);
    });
  }

  it('a renewal of another authority runs beside it, under its own id', async () => {
    const world = new KeyWorld('ca');
    assert.equal(idOf(world, 'serving'), 'renew-ca/serving');
    workers = await runKeyWorkers(temporal, world, { activitiesOnly: true });
    const started = await temporal.skipping.workflow.start('renewCa', {
      workflowId: 'renew-ca/serving',
      taskQueue: 'bc-control',
      args: [],
    });
    assert.equal(((await started.result()) as messages.KeyRotationResult).subject, 'serving');
  });
});
