/** The story of a rotation on a real server, with a day skipped. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { day } from '../../domain/time.ts';
import { verifyRotationEvidence } from '../../pki/audit/verify-evidence.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { countEvents, type RunningWorkers, runRotationWorkers, startRotation } from './rotation-rig.ts';
import { RotationWorld } from './rotation-world.ts';

describe('rotateCommandRoot: the story', function () {
  this.timeout(60_000);
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    await workers?.stop();
    workers = undefined;
  });

  it('ROT-001 adds, waits, switches, waits a day and drops, with no input; H-17 the evidence proves it offline', async () => {
    const world = new RotationWorld();
    const oldRoot = world.roots$.signing;
    world.signedUnder.set(oldRoot, 3);
    workers = await runRotationWorkers(temporal, world);
    const handle = await startRotation(temporal.skipping);
    const result = await handle.result();

    assert.equal(result.outcome, 'dropped');
    assert.equal(result.oldRoot, oldRoot);
    assert.equal(result.commandsSignedAgain, 3);
    assert.deepEqual(world.effects, ['add', 'switch', 'resign 3', 'drop']);
    assert.deepEqual(
      world.roots$.roots.map((root) => root.id),
      [result.newRoot],
    );
    assert.deepEqual(world.stagesOf(result.rotationId), ['plan', 'add', 'processes', 'fleet', 'switch', 'resign', 'drop', 'confirm']);
    const verdict = verifyRotationEvidence(world.documents.get(result.rotationId)?.map((row) => row.signed) ?? [], {
      auditKey: world.auditKey,
      pin: `sha256/${createHash('sha256').update(world.auditKey).digest('base64')}`,
      minOverlapMs: day,
    });
    assert.deepEqual(verdict.problems, []);
    assert.equal(verdict.outcome, 'completed');
    const events = await countEvents(handle);
    assert.ok(events.total <= 120, `${events.total} events`);
  });
});
