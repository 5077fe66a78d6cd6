/** Runs on machines on a real server, told from beginning to end: what is sent, what is seen, how they end. */
import assert from 'node:assert/strict';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { type RunHandle, runMetalWorkers, startRun, statusOf, untilRun, words } from './metal-rig.ts';
import { MetalWorld } from './metal-world.ts';
import { countEvents, type RunningWorkers } from './rotation-rig.ts';

describe('provisionMachine', function () {
  this.timeout(60_000);
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let handle: RunHandle | undefined;
  let world: MetalWorld;

  before(async () => {
    temporal = await sharedTemporal();
  });
  beforeEach(() => {
    world = new MetalWorld();
  });
  afterEach(async () => {
    await handle?.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    [workers, handle] = [undefined, undefined];
  });

  const begin = async (kind: Parameters<typeof startRun>[1] = 'provision'): Promise<RunHandle> => {
    workers = await runMetalWorkers(temporal, world);
    handle = await startRun(temporal.skipping, kind);
    return handle;
  };

  it('provisions a machine: every command once, the evidence stored, the system joined, in at most 150 events', async () => {
    const run = await begin();
    const result = await run.result();
    assert.deepEqual(
      { ...result, runId: typeof result.runId, batchId: typeof result.batchId },
      {
        machineId: 'm1',
        kind: 'provision',
        runId: 'string',
        end: 'done',
        remains: null,
        failure: '',
        detail: '',
        batchId: 'string',
        reboots: 0,
      },
    );
    assert.deepEqual(world.sent, [
      'prepare-boot.1',
      'set-boot.1',
      'power.1',
      'read-disks.1',
      'wipe.1',
      'deploy.1',
      'clean-up.1',
      'start.1',
    ]);
    assert.equal(world.machine().state, 'provisioned');
    const { total } = await countEvents(run as never);
    process.stderr.write(`      ${total} events\n`);
    assert.ok(total <= 150, `${total} events`);
    const done = world.steps.filter(({ state }) => state === 'done').map(({ step }) => step);
    assert.deepEqual(done, ['prepare-boot', 'boot', 'ramdisk-join', 'diagnose', 'wipe', 'deploy', 'clean-up', 'start', 'provisioned-join']);
    const prefix = `machine/m1/provision/${result.runId}`;
    assert.deepEqual(
      [...world.stored.keys()].every((id) => id.startsWith(`${prefix}/`)),
      true,
    );
  });
});
void statusOf;
void untilRun;
void words;
