/** Every step of a rotation fails, or succeeds and loses its answer: the rotation ends, and nothing happens twice. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { day } from '../../domain/time.ts';
import { verifyRotationEvidence } from '../../pki/audit/verify-evidence.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { countEvents, type RunningWorkers, runRotationWorkers, startRotation, worldOf } from './rotation-rig.ts';
import { failing, RotationWorld } from './rotation-world.ts';

/** A name with `.done` is the step itself done, and its answer lost: the step is repeated. */
const calls = [
  'roots.read',
  'roots.add',
  'roots.add.done',
  'facts.fleet',
  'roots.switch',
  'roots.switch.done',
  'resign.signAgain',
  'roots.drop',
  'roots.drop.done',
  'evidence.plan',
  'evidence.add',
  'evidence.processes',
  'evidence.fleet',
  'evidence.switch',
  'evidence.resign',
  'evidence.drop',
  'evidence.confirm',
] as const;

/** Events of a rotation that nothing disturbs; faults are retried by the server and add none. */
const undisturbed = 85;

describe('rotateCommandRoot: faults', function () {
  this.timeout(60_000);
  let temporal: TestTemporal;
  let workers: RunningWorkers;
  let current: RotationWorld;

  before(async () => {
    temporal = await sharedTemporal();
    workers = await runRotationWorkers(
      temporal,
      worldOf(() => current),
    );
  });
  after(() => workers.stop());

  const run = async (world: RotationWorld): Promise<number> => {
    current = world;
    const handle = await startRotation(temporal.skipping);
    const result = await handle.result();
    assert.equal(result.outcome, 'dropped');
    assert.deepEqual(world.effects, ['add', 'switch', 'drop']);
    assert.deepEqual(world.stagesOf(result.rotationId), ['plan', 'add', 'processes', 'fleet', 'switch', 'resign', 'drop', 'confirm']);
    const verdict = verifyRotationEvidence(world.documents.get(result.rotationId)?.map((row) => row.signed) ?? [], {
      auditKey: world.auditKey,
      pin: `sha256/${createHash('sha256').update(world.auditKey).digest('base64')}`,
      minOverlapMs: day,
    });
    assert.deepEqual(verdict.problems, []);
    return (await countEvents(handle)).total;
  };

  for (const call of calls) {
    it(`goes on when ${call} fails once`, async () => {
      const world = new RotationWorld();
      world.before = failing(call, 1);
      assert.equal(await run(world), undisturbed);
    });
  }

  it('goes on when everything fails the first two times', async () => {
    const world = new RotationWorld();
    const all = calls.map((call) => failing(call, 2));
    world.before = (name) => {
      for (const fail of all) fail(name);
    };
    assert.equal(await run(world), undisturbed);
  });

  it('H-03 a worker key that was issued late moves the drop; the history does not grow', async () => {
    const world = new RotationWorld();
    let late = 0;
    world.before = (call) => {
      // After the drop's instant was computed a process turns up that had the old bundle for three hours more.
      if (call !== 'evidence.resign' || late > 0) return;
      late = world.now() + day + 3 * 3_600_000;
      world.workerNotAfter.set(world.roots$.rotation?.oldRoot ?? '', late);
    };
    await run(world);
    const removed = world.roots$.removed[0];
    assert.ok(removed !== undefined && removed.removedAt >= late + 120_000, `dropped ${removed?.removedAt}, not before ${late + 120_000}`);
  });

  it('H-05 nothing is dropped while a command is signed under the old root', async () => {
    const world = new RotationWorld();
    let checks = 0;
    const left = world.resign.stillSignedUnder;
    Object.assign(world.resign, { stillSignedUnder: async (root: string) => ((checks += 1) < 3 ? 1 : left(root)) });
    await run(world);
    assert.equal(checks, 3);
  });
});
