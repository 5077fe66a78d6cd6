/** The gates at the moment of the act: order, wording, overrides, and what no override opens. */
import assert from 'node:assert/strict';
import { ApplicationFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { createRotationControlActivities } from '../../activities/rotation-control.ts';
import type { GateReport } from '../../activities/rotation-gates.ts';
import type { OverrideRow } from '../../activities/rotation-ports.ts';
import { createRotationSigningActivities } from '../../activities/rotation-signing.ts';
import { RotationWorld } from '../workflows/rotation-world.ts';

/** Refusals are what is tested here; the mock would log each of them. */
const quiet = { logger: new DefaultLogger('ERROR') };
const rotationId = 'rotate-command-root/run-1';
const words = { actor: 'ann', reason: 'because' };

const inActivity = <T>(run: () => Promise<T>): Promise<T> =>
  new MockActivityEnvironment(undefined, quiet).run<[], T, () => Promise<T>>(run);

async function refusal(run: () => Promise<unknown>): Promise<{ type: unknown; message: string; reason: unknown }> {
  const error = await inActivity(run).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof ApplicationFailure, String(error));
  return { type: error.type, message: error.message, reason: (error.details?.[0] as Record<string, unknown> | undefined)?.['reason'] };
}

const override = (world: RotationWorld, row: Partial<OverrideRow> & Pick<OverrideRow, 'kind'>): void => {
  world.overrideRows.set(rotationId, [...(world.overrideRows.get(rotationId) ?? []), { subject: '', ...words, at: 1, ...row }]);
};

/** A rotation after its add, nothing rolled out. */
async function added(
  nodes?: ConstructorParameters<typeof RotationWorld>[0],
): Promise<{ world: RotationWorld; signing: ReturnType<typeof createRotationSigningActivities> }> {
  const world = new RotationWorld(nodes);
  world.follows = false;
  const signing = createRotationSigningActivities(world);
  await inActivity(() => signing.addCommandRoot({ rotationId }));
  return { world, signing };
}

describe("the rotation's gates at the act", () => {
  it('ROT-023, ROT-024 the publication comes first, then the processes, then the fleet', async () => {
    const { world, signing } = await added();
    const attempt = () => refusal(() => signing.switchCommandRoot({ rotationId }));
    assert.deepEqual(await attempt(), {
      type: 'NOT_YET',
      message: 'Not switching: the deployment still publishes trust version 1 without the new root',
      reason: 'not-published',
    });
    const stale = [...world.processes$];
    world.publish();
    const [api, worker] = stale;
    world.processes$.splice(0, 2, ...world.processes$.slice(0, 1), worker as never);
    assert.match((await attempt()).message, /^1 of 2 process\(es\) do not run this bundle yet \(worker-signing worker-signing-1\)$/);
    assert.ok(api !== undefined);
    world.publish();
    for (const node of world.nodes.values()) node.trustVersion = 1;
    assert.match((await attempt()).message, /^2 of 2 connected node\(s\) have not applied it \(node-1 at 1, node-2 at 1\)$/);
    assert.deepEqual(world.effects, ['add']);
    for (const node of world.nodes.values()) node.trustVersion = 2;
    await inActivity(() => signing.switchCommandRoot({ rotationId }));
    await inActivity(() => signing.switchCommandRoot({ rotationId }));
    assert.deepEqual(world.effects, ['add', 'switch']);
  });

  it('ROT-022 counts the published version, not the one of the bundle', async () => {
    const { world, signing } = await added();
    world.published = { version: 6, digest: 'other' };
    world.publish();
    for (const node of world.nodes.values()) node.trustVersion = 2;
    assert.match((await refusal(() => signing.switchCommandRoot({ rotationId }))).message, /node-1 at 2/);
    for (const node of world.nodes.values()) node.trustVersion = 7;
    await inActivity(() => signing.switchCommandRoot({ rotationId }));
    assert.equal(world.roots$.rotation?.stage, 'switched');
  });

  it('no force opens the publication', async () => {
    const { world, signing } = await added();
    for (const subject of ['processes', 'fleet', 'signers', 'confirm']) override(world, { kind: 'force', subject });
    assert.equal((await refusal(() => signing.switchCommandRoot({ rotationId }))).reason, 'not-published');
  });

  it('ROT-028 a recorded force opens its gate; an unrecorded one is nothing', async () => {
    const { world, signing } = await added({ 'node-1': { obedient: false } });
    world.publish();
    assert.equal((await refusal(() => signing.switchCommandRoot({ rotationId }))).reason, 'nodes-behind');
    override(world, { kind: 'force', subject: 'fleet' });
    await inActivity(() => signing.switchCommandRoot({ rotationId }));
    assert.equal(world.roots$.rotation?.stage, 'switched');
  });

  it('H-04 a recorded abort holds every step forward, and an unrecorded one takes nothing back', async () => {
    const { world, signing } = await added();
    world.publish();
    assert.deepEqual(await refusal(() => signing.abortCommandRotation({ rotationId })), {
      type: 'INVALID_STATE',
      message: `no abort of rotation ${rotationId} is recorded`,
      reason: 'not-recorded',
    });
    override(world, { kind: 'abort' });
    assert.deepEqual(await refusal(() => signing.switchCommandRoot({ rotationId })), {
      type: 'NOT_YET',
      message: 'ann aborts this rotation: no further step forward',
      reason: 'abort-recorded',
    });
    assert.deepEqual(await inActivity(() => signing.abortCommandRotation({ rotationId })), { kind: 'removed' });
    assert.deepEqual(await inActivity(() => signing.abortCommandRotation({ rotationId })), { kind: 'removed' });
    assert.deepEqual(world.effects, ['add', 'abort']);
  });

  for (const [moment, effects] of [
    ['roots.add.swap', []],
    ['roots.add', ['add', 'abort']],
  ] as const) {
    it(`H-04 an abort recorded at ${moment} leaves no root behind, though it found nothing to take back`, async () => {
      const world = new RotationWorld();
      world.follows = false;
      const signing = createRotationSigningActivities(world);
      let isDue = true;
      world.before = async (name) => {
        if (name !== moment || !isDue) return;
        isDue = false;
        override(world, { kind: 'abort' });
        assert.deepEqual(await inActivity(() => signing.abortCommandRotation({ rotationId })), { kind: 'nothing' });
      };
      assert.equal((await refusal(() => signing.addCommandRoot({ rotationId }))).reason, 'abort-recorded');
      assert.deepEqual(world.effects, effects);
      assert.deepEqual([world.roots$.roots.length, world.roots$.rotation], [1, null]);
    });
  }

  for (const published of [false, true]) {
    it(`C12 an abort is ordered above the version of the add, ${published ? 'which is published' : 'also when that is still to be published'}`, async () => {
      const { world } = await added();
      if (published) world.publish();
      override(world, { kind: 'abort' });
      const seen: number[] = [];
      const abort: typeof world.roots.abort = (input) => {
        seen.push(input.recordedVersion);
        return world.roots.abort(input);
      };
      const signing = createRotationSigningActivities(Object.assign(Object.create(world), { roots: { ...world.roots, abort } }));
      await inActivity(() => signing.abortCommandRotation({ rotationId }));
      assert.deepEqual(seen, [2]);
    });
  }

  it('ROT-012 a drop before the switch is refused for good', async () => {
    const { signing } = await added();
    const refused = await refusal(() => signing.dropCommandRoot({ rotationId }));
    assert.equal(refused.type, 'INVALID_STATE');
    assert.match(refused.message, /^drop before switch: rotation .* is at stage added$/);
  });

  it('H-03 a drop says from when on it may happen, whatever the workflow thinks', async () => {
    const { world, signing } = await added();
    world.follows = true;
    world.publish();
    await inActivity(() => signing.switchCommandRoot({ rotationId }));
    const early = await refusal(() => signing.dropCommandRoot({ rotationId }));
    assert.equal(early.type, 'NOT_YET');
    assert.match(early.message, /^the old root can be dropped from \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(in 2[34] h \d+ min\)$/);
    assert.deepEqual(world.effects, ['add', 'switch']);
  });

  it('H-04 a drop that was cancelled by an abort and goes on does not take the other root', async () => {
    const { world, signing } = await added();
    world.follows = true;
    world.times = { overlapMs: 0, dropMarginMs: 0, workerLifetimeMs: 1_000 };
    world.publish();
    await inActivity(() => signing.switchCommandRoot({ rotationId }));
    const [oldRoot, newRoot] = world.roots$.roots.map((root) => root.id);
    world.before = async (call) => {
      if (call !== 'roots.drop') return;
      world.before = () => {};
      override(world, { kind: 'abort' });
      await signing.abortCommandRotation({ rotationId });
    };
    const cut = await refusal(() => signing.dropCommandRoot({ rotationId }));
    assert.deepEqual([cut.type, cut.reason], ['INVALID_STATE', 'roles-exchanged']);
    assert.deepEqual([world.roots$.signing, world.roots$.roots.map((root) => root.id)], [oldRoot, [oldRoot, newRoot]]);
    assert.deepEqual(world.effects, ['add', 'switch', 'abort']);
  });

  it('H-04 a switch that was cancelled by an abort leaves no evidence of a switch', async () => {
    const { world, signing } = await added();
    world.publish();
    world.before = async (call) => {
      if (call !== 'roots.switch') return;
      world.before = () => {};
      override(world, { kind: 'abort' });
      await signing.abortCommandRotation({ rotationId });
    };
    await inActivity(() => signing.switchCommandRoot({ rotationId }));
    assert.deepEqual(world.effects, ['add', 'abort']);
    assert.ok(!world.stagesOf(rotationId).includes('switch'));
  });

  it('a step of another rotation is refused', async () => {
    const { world, signing } = await added();
    world.publish();
    assert.match(
      (await refusal(() => signing.switchCommandRoot({ rotationId: 'rotate-command-root/other' }))).message,
      /is in progress, not rotate-command-root\/other$/,
    );
  });

  it('a closed gate reports once its caller has waited long enough', async () => {
    const { world } = await added({ 'node-1': { obedient: false } });
    world.publish();
    const control = createRotationControlActivities(world);
    const ask = { rotationId, gate: 'fleet', version: 2 } as const;
    const waited = new MockActivityEnvironment({ scheduledTimestampMs: 1_000, currentAttemptScheduledTimestampMs: 61_000 });
    const report = await waited.run<[], GateReport, () => Promise<GateReport>>(() => control.awaitFleet({ ...ask, patienceMs: 60_000 }));
    assert.ok(report.kind === 'closed');
    assert.deepEqual({ kind: report.kind, count: report.count, behind: report.behind }, { kind: 'closed', count: 1, behind: ['node-1'] });
    assert.equal((await refusal(() => control.awaitFleet({ ...ask, patienceMs: 60_000 }))).type, 'NOT_YET');
    assert.equal((await refusal(() => control.awaitFleet({ ...ask, patienceMs: null }))).type, 'NOT_YET');
  });
});
