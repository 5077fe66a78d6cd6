/** A rotation that meets an older bundle or database: it holds where everyone sees it, and goes on by itself once repaired. */
import assert from 'node:assert/strict';
import { defineSearchAttributeKey } from '@temporalio/common';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import * as messages from '../../workflows/rotate-command-root/messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { countEvents, type RotationHandle, type RunningWorkers, runRotationWorkers, startRotation, untilStatus } from './rotation-rig.ts';
import { RotationWorld } from './rotation-world.ts';

const words = { actor: 'ann', reason: 'the backup was wrong' };
const phaseKey = defineSearchAttributeKey('BcPhase', 'KEYWORD');
const waitingOnKey = defineSearchAttributeKey('BcWaitingOn', 'KEYWORD_LIST');

interface Cause {
  readonly reason: string;
  readonly message: string;
  readonly waitsFor: 'key bundle' | 'database';
}

const causes: readonly Cause[] = [
  { reason: 'bundle-replaced', message: 'the key bundle at hand is generation 2, the deployment runs 4', waitsFor: 'key bundle' },
  { reason: 'bundle-forked', message: 'two different key bundles call themselves generation 4', waitsFor: 'key bundle' },
  { reason: 'database-behind-fleet', message: '3 of 3 connected node(s) hold trust version 9', waitsFor: 'database' },
];

/** A world in which `call` meets the cause until `repair` is called. */
function brokenWorld(call: string, { reason, message }: Cause): { world: RotationWorld; repair: () => void; met: () => number } {
  const world = new RotationWorld();
  world.times = { overlapMs: 500, dropMarginMs: 10, workerLifetimeMs: 400 };
  let broken = true;
  let met = 0;
  world.before = (name) => {
    if (!broken || (name !== call && name !== 'roots.assertFresh')) return;
    if (name === call) met += 1;
    throw new ControlError('STALE_BUNDLE', message, { details: { reason } });
  };
  return { world, repair: () => (broken = false), met: () => met };
}

describe('rotateCommandRoot: older than the deployment', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;

  before(async () => {
    temporal = await sharedTemporal();
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
    workers = await runRotationWorkers(temporal, world, { activitiesOnly: true });
    return startRotation(temporal.skipping);
  };
  const untilHeld = (handle: RotationHandle): Promise<messages.RotationStatus> => untilStatus(handle, (status) => status.blocked !== null);
  const attributesOf = async (handle: RotationHandle): Promise<[string | undefined, string[] | undefined]> => {
    const { typedSearchAttributes } = await handle.describe();
    return [typedSearchAttributes.get(phaseKey), typedSearchAttributes.get(waitingOnKey)];
  };
  const detailsOf = async (handle: RotationHandle): Promise<string> => {
    const metadata = await handle.query<{ currentDetails?: string }>('__temporal_workflow_metadata');
    return metadata.currentDetails ?? '';
  };
  const pendingOf = async (handle: RotationHandle): Promise<(string | null | undefined)[]> =>
    ((await handle.describe()).raw.pendingActivities ?? []).map((activity) => activity.activityType?.name);

  const calls = ['roots.switch', 'roots.add', 'resign.signAgain', 'roots.drop'];
  for (const [place, cause] of causes.entries()) {
    for (const call of place === 0 ? calls : calls.slice(0, 1)) {
      it(`H-07 ${cause.reason} at ${call}: phase blocked, the reason in the details, and on by itself once repaired`, async () => {
        const { world, repair, met } = brokenWorld(call, cause);
        const handle = await begin(world);
        const held = await untilHeld(handle);
        assert.deepEqual(held.blocked, { code: 'STALE_BUNDLE', message: cause.message, waitsFor: cause.waitsFor });
        assert.deepEqual(await attributesOf(handle), ['blocked', [cause.waitsFor]]);
        const details = await detailsOf(handle);
        assert.ok(details.includes(`- **held**: STALE_BUNDLE: ${cause.message}`), details);
        assert.ok(details.includes(`- waits for the ${cause.waitsFor}: goes on by itself once that is repaired`), details);
        assert.deepEqual(await pendingOf(handle), ['awaitFreshness']);
        const tries = met();
        assert.equal(tries, cause.reason === 'bundle-forked' ? 1 : 4, 'tried for a while, by whichever worker is current; then told');
        repair();
        assert.equal((await handle.result()).outcome, 'dropped');
        assert.deepEqual(
          world.effects.filter((effect) => !effect.startsWith('resign')),
          ['add', 'switch', 'drop'],
        );
        assert.notEqual((await attributesOf(handle))[0], 'blocked');
        assert.ok((await countEvents(handle)).total <= 120);
      });
    }
  }

  const [replaced] = causes as [Cause];

  it('H-07 an operator who knows better goes on at once with resume', async () => {
    const { world, met } = brokenWorld('roots.switch', replaced);
    const handle = await begin(world);
    await untilHeld(handle);
    const first = met();
    await handle.signal(messages.resume);
    await untilStatus(handle, (status) => status.blocked !== null && met() > first);
    assert.equal(met(), first + 4);
    assert.deepEqual(world.effects, ['add']);
  });

  it('H-07 an abort ends the hold; what it needs itself is held for as well', async () => {
    const { world, repair } = brokenWorld('roots.switch', replaced);
    const handle = await begin(world);
    await untilHeld(handle);
    await handle.executeUpdate(messages.abort, { args: [words] });
    repair();
    const result = await handle.result();
    assert.equal(result.outcome, 'aborted');
    assert.deepEqual(world.effects, ['add', 'abort']);
  });

  it('H-07 H-18 a cause that comes back at once is held for longer each time, and the history stays small', async () => {
    const world = new RotationWorld();
    world.times = { overlapMs: 500, dropMarginMs: 10, workerLifetimeMs: 400 };
    const holds: number[] = [];
    let left = 3;
    world.before = (name) => {
      if (name === 'roots.assertFresh') holds.push(world.now());
      if (name !== 'roots.switch' || left === 0) return;
      left -= 1;
      holds.length = 0;
      throw new ControlError('STALE_BUNDLE', replaced.message, { details: { reason: 'bundle-forked' } });
    };
    const handle = await begin(world);
    assert.equal((await handle.result()).outcome, 'dropped');
    assert.ok((holds.at(-1) ?? 0) - (holds[0] ?? 0) >= 20_000, `the third hold took ${(holds.at(-1) ?? 0) - (holds[0] ?? 0)} ms`);
    assert.ok((await countEvents(handle)).total <= 130);
  });
});
