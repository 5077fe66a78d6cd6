/** The exchange of a key and what goes wrong under it: steps that fail, answers that are lost, workers and runs that end. */
import assert from 'node:assert/strict';
import type { WorkflowFailedError } from '@temporalio/client';
import { ControlError } from '../../domain/errors.ts';
import type { ExchangedKey } from '../../domain/rotation/key-exchanges.ts';
import type { KeyPhase } from '../../workflows/rotate-key/messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type KeyHandle, runKeyWorkers, startExchange, untilKeyStatus } from './key-rig.ts';
import { KeyWorld } from './key-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';
import { failing, RotationWorld } from './rotation-world.ts';

const times = { promoteMs: 100, retireMs: 400 };

const expected: Readonly<Record<ExchangedKey, readonly string[]>> = Object.freeze({
  ticket: ['add', 'promote', 'retire key-1'],
  workload: ['add', 'promote', 'retire key-1'],
  ca: ['add', 'retire key-1'],
  gateway: ['add'],
});

describe('the exchange of a key: faults', function () {
  this.timeout(60_000);
  const workflows = useWorkflows();
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

  const begin = async (world: KeyWorld, freshness?: RotationWorld): Promise<KeyHandle> => {
    world.times = times;
    workers = await runKeyWorkers(temporal, world, { activitiesOnly: true, ...(freshness === undefined ? {} : { freshness }) });
    handle = await startExchange(temporal.client, world);
    return handle;
  };

  /** Before the step, after its effect, and at its evidence. */
  const calls = [
    'read',
    'add',
    'add.done',
    'evidence.add',
    'promote',
    'promote.done',
    'evidence.promote',
    'retire',
    'retire.done',
    'evidence.retire',
  ];
  for (const call of calls) {
    it(`${call} fails once: every step has one effect, every stage one document`, async () => {
      const world = new KeyWorld('ticket');
      world.before = failing(call, 1);
      const result = await (await begin(world)).result();
      assert.deepEqual(world.effects, expected.ticket);
      assert.deepEqual(world.stagesOf(result.rotationId), ['plan', 'add', 'processes', 'promote', 'retire', 'confirm']);
    });
  }

  const phases: readonly [key: ExchangedKey, phase: KeyPhase][] = [
    ['ticket', 'waiting-processes'],
    ['ticket', 'waiting-retire'],
    ['workload', 'waiting-promote'],
    ['workload', 'waiting-retire'],
    ['ca', 'waiting-retire'],
    ['gateway', 'waiting-processes'],
  ];
  for (const [key, phase] of phases) {
    it(`${key}: both workers end at ${phase}; others go on, and nothing happens twice`, async () => {
      const world = new KeyWorld(key);
      if (phase === 'waiting-processes') world.stubborn.add('worker-1');
      const running = await begin(world);
      world.times = { promoteMs: 1_500, retireMs: 1_500 };
      await untilKeyStatus(running, (status) => status.phase === phase);
      await Promise.all([workers?.stop(), workflows.stop()]);
      world.stubborn.clear();
      world.follow();
      await workflows.start();
      workers = await runKeyWorkers(temporal, world, { activitiesOnly: true });
      assert.equal((await running.result()).outcome, 'exchanged');
      assert.deepEqual(world.effects, expected[key]);
    });
  }

  it('R-06 a run that was terminated half way is taken up by the next start, under its rotation id', async () => {
    const world = new KeyWorld('ca');
    const first = await begin(world);
    world.times = { promoteMs: 0, retireMs: 2_000 };
    const { rotationId } = await untilKeyStatus(first, (status) => status.phase === 'waiting-retire');
    await first.terminate('by mistake');
    handle = await startExchange(temporal.client, world);
    const result = await handle.result();
    assert.deepEqual([result.rotationId, result.from, result.to], [rotationId, 'key-1', 'key-2']);
    assert.deepEqual(world.effects, expected.ca, 'the renewal was not made again');
    assert.deepEqual(world.stagesOf(rotationId), ['plan', 'add', 'processes', 'retire', 'confirm']);
    handle = await startExchange(temporal.client, world);
    assert.notEqual((await handle.result()).rotationId, rotationId, 'one that ended is not taken up');
  });

  it('fails at once where nothing has happened, and says why', async () => {
    const world = new KeyWorld('ca');
    world.before = (call) => {
      if (call === 'add') throw new ControlError('INVALID_STATE', 'a renewal gains nothing', { details: { reason: 'nothing-gained' } });
    };
    const running = await begin(world);
    await assert.rejects(running.result(), (error: WorkflowFailedError) => {
      assert.equal((error.cause?.cause as Error | undefined)?.message, 'a renewal gains nothing');
      return true;
    });
    assert.deepEqual(world.effects, []);
  });

  it('CLI-052 holds where the root is offline, says what to do by hand, and goes on from the renewal that was made there', async () => {
    const world = new KeyWorld('ca');
    const message = "the root's private key is offline: renew by hand (better-compute pki renew-ca --ca node --root-key FILE)";
    world.before = (call) => {
      if (call === 'add' && world.keys.length === 1)
        throw new ControlError('INVALID_STATE', message, { details: { reason: 'key-offline' } });
    };
    const running = await begin(world);
    const held = await untilKeyStatus(running, (status) => status.blocked !== null);
    assert.deepEqual([held.phase, held.blocked], ['adding', { code: 'INVALID_STATE', message, waitsFor: 'operator' }]);
    // What pki renew-ca does.
    world.keys = [
      { id: 'key-9', state: 'signing', opensAt: null },
      { id: 'key-1', state: 'former', opensAt: world.now() + 100 },
    ];
    await running.signal('resume');
    const result = await running.result();
    assert.deepEqual([result.outcome, result.from, result.to], ['exchanged', 'key-1', 'key-9']);
    assert.deepEqual(world.effects, ['retire key-1'], 'the workflow renewed nothing itself');
  });

  it('holds for the operator where a step is refused half way, and goes on when told', async () => {
    const world = new KeyWorld('ticket');
    let broken = true;
    world.before = (call) => {
      if (call === 'promote' && broken) throw new ControlError('INVALID_STATE', 'another exchange has replaced it');
    };
    const running = await begin(world);
    const held = await untilKeyStatus(running, (status) => status.blocked !== null);
    assert.deepEqual(held.blocked, { code: 'INVALID_STATE', message: 'another exchange has replaced it', waitsFor: 'operator' });
    const { currentDetails } = await running.query<{ currentDetails: string }>('__temporal_workflow_metadata');
    assert.match(currentDetails, /repair it, then `better-compute rotation resume --key ticket`/);
    broken = false;
    await running.signal('resume');
    assert.equal((await running.result()).outcome, 'exchanged');
  });

  it('H-07 holds while the key bundle is older than the deployment, and goes on by itself once it is repaired', async () => {
    const world = new KeyWorld('ticket');
    const freshness = new RotationWorld();
    let broken = true;
    const stale = (): void => {
      if (broken) throw new ControlError('STALE_BUNDLE', 'an older key bundle', { details: { reason: 'bundle-replaced' } });
    };
    world.before = (call) => {
      if (call === 'promote') stale();
    };
    freshness.before = (call) => {
      if (call === 'roots.assertFresh') stale();
    };
    const running = await begin(world, freshness);
    const held = await untilKeyStatus(running, (status) => status.blocked !== null);
    assert.equal(held.blocked?.waitsFor, 'key bundle');
    broken = false;
    assert.equal((await running.result()).outcome, 'exchanged');
    assert.deepEqual(world.effects, expected.ticket);
  });
});
