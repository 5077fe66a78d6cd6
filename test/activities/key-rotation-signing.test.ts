/**
 * The activities of a key's exchange, called out of order and by hand, as whoever may write to the namespace can: each judges its
 * gate and its time itself, so nothing that a workflow would have waited for is skipped.
 */
import assert from 'node:assert/strict';
import { ApplicationFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import {
  createKeyRotationSigningActivities,
  type KeyOrder,
  type KeyRotationSigningActivities,
} from '../../activities/key-rotation-signing.ts';
import type { ExchangedKey } from '../../domain/rotation/key-exchanges.ts';
import { KeyWorld } from '../workflows/key-world.ts';

/** Refusals are what is tested here; the mock would log each of them. */
const quiet = { logger: new DefaultLogger('ERROR') };
const words = { actor: 'ann', reason: 'wrong week' };

interface Setting {
  readonly world: KeyWorld;
  readonly order: KeyOrder;
  call(name: keyof KeyRotationSigningActivities & string, over?: object): Promise<unknown>;
  abort(): Promise<unknown>;
}

function set(key: ExchangedKey, times = { promoteMs: 0, retireMs: 0 }): Setting {
  const world = new KeyWorld(key);
  world.times = times;
  const activities = createKeyRotationSigningActivities(world);
  const order: KeyOrder = { rotationId: 'by-hand/r', key, subject: '', from: 'key-1', to: 'key-2' };
  return {
    world,
    order,
    call: (name, over = {}) => new MockActivityEnvironment(undefined, quiet).run(activities[name] as never, { ...order, ...over } as never),
    abort: () =>
      world.overrides.recordOverride({ rotationId: order.rotationId, override: { kind: 'abort', subject: '', ...words }, details: {} }),
  };
}

const refused = (type: string, message: RegExp) => (error: Error) => {
  assert.ok(error instanceof ApplicationFailure, String(error));
  assert.equal(error.type, type);
  assert.match(error.message, message);
  return true;
};

describe('the activities of an exchange, called by hand', () => {
  it('R-04 a promotion before its time is not yet', async () => {
    const { world, call } = set('workload', { promoteMs: 60_000, retireMs: 0 });
    await call('addKey');
    await assert.rejects(call('promoteKey'), refused('NOT_YET', /^it opens at 20/));
    assert.deepEqual(world.effects, ['add']);
  });

  it('R-04 a retirement before its time is not yet', async () => {
    const { world, call } = set('ticket', { promoteMs: 0, retireMs: 60_000 });
    await call('addKey');
    await call('promoteKey');
    await assert.rejects(call('retireKey', { takenBack: false }), refused('NOT_YET', /^it opens at 20/));
    assert.deepEqual(world.effects, ['add', 'promote']);
  });

  for (const [step, before] of [
    ['promoteKey', ['addKey']],
    ['retireKey', ['addKey', 'promoteKey']],
  ] as const) {
    it(`R-04 H-02 ${step} while a process is behind is not yet, whatever was told to the workflow`, async () => {
      const { world, call } = set('ticket');
      for (const name of before) await call(name);
      world.runs.set('worker-1', 'an earlier one');
      const { length } = world.effects;
      await assert.rejects(
        call(step, { takenBack: false }),
        refused('NOT_YET', /^1 of 2 process\(es\) do not run this bundle yet \(worker worker-1\)$/),
      );
      assert.equal(world.effects.length, length);
    });
  }

  it('R-05 once an abort is recorded no step goes forward that could be taken back', async () => {
    const { world, call, abort } = set('ticket');
    await abort();
    await assert.rejects(call('addKey'), refused('NOT_YET', /^ann aborts this exchange: no further step forward$/));
    assert.deepEqual(world.effects, []);
  });

  it('R-05 an abort that is recorded while the key is made finds it taken back', async () => {
    const { world, call, abort } = set('ticket');
    world.before = async (name) => {
      if (name === 'add.done') await abort();
    };
    await assert.rejects(call('addKey'), refused('NOT_YET', /aborts this exchange/));
    assert.deepEqual(world.effects, ['add', 'retire key-2']);
    assert.deepEqual(await call('abortKeyExchange'), { kind: 'nothing', opensAt: null });
  });

  it('R-05 an abort that nobody recorded takes nothing back', async () => {
    const { world, call } = set('ticket');
    await call('addKey');
    await assert.rejects(call('abortKeyExchange'), refused('INVALID_STATE', /^no abort of rotation by-hand\/r is recorded$/));
    assert.deepEqual(world.effects, ['add']);
  });

  it('every step that is repeated changes nothing, also out of order', async () => {
    const { world, call } = set('ticket');
    for (const name of ['addKey', 'addKey', 'promoteKey', 'promoteKey', 'addKey'] as const) await call(name);
    for (let again = 0; again < 2; again++) await call('retireKey', { takenBack: false });
    for (const name of ['promoteKey', 'addKey'] as const) await call(name);
    assert.deepEqual(world.effects, ['add', 'promote', 'retire key-1']);
  });

  it('the key that signs cannot be retired, and a step that names no key is refused', async () => {
    const { world, call } = set('ticket');
    await assert.rejects(call('promoteKey', { to: null }), refused('INVALID_INPUT', /^the step names no key$/));
    await call('retireKey', { from: null, takenBack: true });
    assert.deepEqual(world.effects, []);
  });
});
