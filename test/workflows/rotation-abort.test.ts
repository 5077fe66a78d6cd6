/** H-04: a rotation can be taken back at every stage, and what that leaves behind. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { WorkflowUpdateFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { verifyRotationEvidence } from '../../pki/audit/verify-evidence.ts';
import { abort, type RotationStatus } from '../../workflows/rotate-command-root/messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type RotationHandle, type RunningWorkers, runRotationWorkers, startRotation, untilStatus } from './rotation-rig.ts';
import { RotationWorld } from './rotation-world.ts';

const words = { actor: 'ann', reason: 'wrong week' };
/** Real time here: an abort has to come while something waits. */
const shortTimes = { overlapMs: 1_500, dropMarginMs: 10, workerLifetimeMs: 1_000 };

function evidenceProblems(world: RotationWorld, rotationId: string): unknown {
  const documents = world.documents.get(rotationId)?.map((row) => row.signed) ?? [];
  return verifyRotationEvidence(documents, {
    auditKey: world.auditKey,
    pin: `sha256/${createHash('sha256').update(world.auditKey).digest('base64')}`,
    minOverlapMs: shortTimes.overlapMs,
  }).problems;
}

describe('rotateCommandRoot: abort', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    await workers?.stop();
    workers = undefined;
  });

  const begin = async (world: RotationWorld): Promise<RotationHandle> => {
    world.times = shortTimes;
    workers = await runRotationWorkers(temporal, world, { activitiesOnly: true });
    return startRotation(temporal.client);
  };
  const at =
    (phase: RotationStatus['phase']) =>
    (status: RotationStatus): boolean =>
      status.phase === phase;

  it('H-04 before the add nothing changes', async () => {
    const world = new RotationWorld();
    const { signing } = world.roots$;
    world.before = (call) => {
      if (call === 'roots.add') throw new Error('the disk is slow today');
    };
    const handle = await begin(world);
    await untilStatus(handle, at('adding'));
    await handle.executeUpdate(abort, { args: [words] });
    const result = await handle.result();
    assert.equal(result.outcome, 'aborted');
    assert.deepEqual(world.effects, []);
    assert.equal(world.roots$.signing, signing);
  });

  it('H-04 after the add the new root leaves, at a higher trust version; daemons follow', async () => {
    const world = new RotationWorld({ 'node-1': {}, 'node-old': { obedient: false } });
    const { signing } = world.roots$;
    const handle = await begin(world);
    const waiting = await untilStatus(handle, (status) => status.phase === 'waiting-fleet' && status.behind !== null);
    assert.equal(waiting.behind?.message, '1 of 2 connected node(s) have not applied it (node-old at 1)');
    const versionBefore = world.published?.version ?? 0;
    for (const node of world.nodes.values()) node.obedient = true;
    world.before = (call) => {
      if (call === 'roots.abort.done') world.publish();
    };
    await handle.executeUpdate(abort, { args: [words] });
    const result = await handle.result();
    assert.equal(result.outcome, 'aborted');
    assert.deepEqual(
      world.roots$.roots.map((root) => root.id),
      [signing],
    );
    assert.ok((world.published?.version ?? 0) > versionBefore);
    assert.equal(world.roots$.removed[0]?.switchedAt, 0);
    assert.deepEqual(world.stagesOf(result.rotationId), ['plan', 'add', 'processes', 'abort', 'confirm']);
    assert.deepEqual(evidenceProblems(world, result.rotationId), []);
  });

  for (const phase of ['waiting-signers', 'waiting-drop'] as const) {
    it(`H-04 after the switch (${phase}) workers sign under the old root again and the new one waits for its own drop`, async () => {
      const world = new RotationWorld();
      const { signing } = world.roots$;
      if (phase === 'waiting-signers') {
        world.before = (call) => {
          if (call === 'roots.switch') world.follows = false;
        };
      } else {
        world.times = { ...shortTimes, overlapMs: 60_000 };
      }
      workers = await runRotationWorkers(temporal, world, { activitiesOnly: true });
      if (phase === 'waiting-signers') world.times = shortTimes;
      const handle = await startRotation(temporal.client);
      await untilStatus(handle, at(phase));
      world.before = () => {};
      world.follows = true;
      world.times = shortTimes;
      await handle.executeUpdate(abort, { args: [words] });
      const result = await handle.result();
      assert.equal(result.outcome, 'aborted');
      assert.deepEqual(world.effects, ['add', 'switch', 'abort', 'drop']);
      assert.equal(world.roots$.signing, signing);
      assert.deepEqual(
        world.roots$.roots.map((root) => root.id),
        [signing],
      );
      const removed = world.roots$.removed[0];
      assert.ok(removed !== undefined && removed.removedAt - removed.switchedAt >= shortTimes.overlapMs);
      assert.deepEqual(evidenceProblems(world, result.rotationId), []);
    });
  }

  it('H-04 after the drop it is refused and says to start a new rotation', async () => {
    const world = new RotationWorld({ 'node-1': {}, 'node-2': {} });
    world.before = (call) => {
      if (call === 'roots.drop') world.follows = false;
    };
    const handle = await begin(world);
    await untilStatus(handle, at('confirming'));
    const refused = await handle.executeUpdate(abort, { args: [words] }).then(
      () => undefined,
      (error: unknown) => error,
    );
    assert.ok(refused instanceof WorkflowUpdateFailedError && refused.cause instanceof ApplicationFailure);
    assert.equal(refused.cause.type, 'INVALID_STATE');
    assert.equal(refused.cause.message, 'the old root has been dropped: start a new rotation instead');
    world.follows = true;
    world.publish();
    assert.equal((await handle.result()).outcome, 'dropped');
  });

  it('H-04 an abort that comes in the moment of the drop loses to it', async () => {
    const world = new RotationWorld();
    const handle = await begin(world);
    let aborted: Promise<unknown> | undefined;
    world.before = async (call) => {
      if (call !== 'roots.drop.done') return;
      aborted ??= handle.executeUpdate(abort, { args: [words] });
      await aborted;
      throw new Error('the answer of the drop is lost');
    };
    const result = await handle.result();
    assert.equal(result.outcome, 'dropped');
    assert.deepEqual(world.effects, ['add', 'switch', 'drop']);
  });
});
