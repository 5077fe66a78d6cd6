/** Runs on machines while workers are killed: each command has its effect once, and fifty machines go on. */
import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import { site } from '../../proto/index.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { type LostAt, losing } from './metal-losses.ts';
import { type RunHandle, runMetalWorkers, startRun, startWorkflowWorker } from './metal-rig.ts';
import { MetalWorld } from './metal-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

describe('runs on machines while workers are killed', function () {
  this.timeout(240_000);
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  const handles: RunHandle[] = [];

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    for (const handle of handles.splice(0)) await handle.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    workers = undefined;
  });

  /** Of every kind, and along every way that a run may take: one machine each, side by side. */
  const stories: Readonly<Record<string, { readonly kind: RunKind; readonly end: string }>> = {
    'the-way': { kind: 'provision', end: 'done,,0,provisioned,on' },
    'second-chances': { kind: 'provision', end: 'done,,2,provisioned,on' },
    'way-back': { kind: 'provision', end: 'failed,dirty,0,quarantined,off' },
    retired: { kind: 'retire', end: 'done,,0,retired,off' },
    inspected: { kind: 'inspect', end: 'done,,0,available,off' },
    'password-changed': { kind: 'rotate-bmc', end: 'done,,0,available,off' },
  };
  const play = async (lostAt?: LostAt): Promise<{ world: MetalWorld; ends: Record<string, string>; lost: number }> => {
    const world = new MetalWorld(Object.keys(stories));
    world.machine('retired').state = 'provisioned';
    world.netboots = (boot, machineId) => machineId !== 'second-chances' || boot === 2;
    world.systemJoins = (by, machineId) => machineId !== 'second-chances' || by === 'disk';
    world.reply.set('wipe', (_n, { id }) => (id.includes('/way-back/') ? { state: 'failed', error: 'nvme format exited 1' } : {}));
    const { ports, lost } = lostAt === undefined ? { ports: world, lost: new Set() } : losing(world, lostAt);
    workers = await runMetalWorkers(temporal, world, { ports });
    const ends = Object.entries(stories).map(async ([machineId, { kind }]): Promise<[string, string]> => {
      const run = await startRun(temporal.skipping, kind, { machineId });
      handles.push(run);
      const { end, remains, reboots } = await run.result();
      const { state, power } = world.machine(machineId);
      return [machineId, [end, remains, reboots, state, power].join()];
    });
    return { world, ends: Object.fromEntries(await Promise.all(ends)), lost: lost.size };
  };
  const done = ({ effects }: MetalWorld, machineId: string): string[] => effects.filter((one) => one.startsWith(`${machineId} `));

  for (const at of ['before', 'after'] as const)
    it(`M38 has every effect once, and the same end, when the worker is lost ${at} each call of each activity of each kind of run`, async () => {
      const undisturbed = await play();
      await workers?.stop();
      const { world, ends, lost } = await play(at);
      for (const [machineId, { end }] of Object.entries(stories)) {
        assert.deepEqual([undisturbed.ends[machineId], ends[machineId]], [end, end], machineId);
        assert.deepEqual(done(world, machineId), done(undisturbed.world, machineId), `${machineId}: no effect twice`);
      }
      assert.deepEqual(world.sent.toSorted(), undisturbed.world.sent.toSorted(), 'no command under a second id');
      assert.ok(lost > 4 * world.sent.length, `${lost} calls were lost`);
    });

  for (const [how, signal, machines] of [
    ['stopped', 'SIGTERM', 10],
    ['killed', 'SIGKILL', 50],
  ] as const)
    it(`M2 ${machines} machines that are in the middle of a step go on when every worker is ${how}, and none does it twice`, async () => {
      const names = Array.from({ length: machines }, (_, at) => `${how}${at}`);
      const world = new MetalWorld(names);
      world.reply.set('read-disks', () => 'hold');
      const first = await startWorkflowWorker(temporal);
      workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
      for (const machineId of names) handles.push(await startRun(temporal.client, 'provision', { machineId }));
      const held = (): [string, { workflowId: string; activityId: string }][] =>
        [...world.waits].filter(([id]) => id.includes('/read-disks.'));
      while (held().length < names.length) await new Promise((resolve) => setTimeout(resolve, 50));
      await first.end(signal);
      await workers.stop();
      world.reply.clear();
      const ended = held();
      for (const [id] of ended) world.finish(id);
      const second = await startWorkflowWorker(temporal);
      workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
      // As the relay does: by the activity's id, to whoever waits.
      for (const [, { workflowId, activityId }] of ended)
        await temporal.client.activity.complete({ workflowId, activityId }, { state: 'done', error: '' });
      const results = await Promise.all(handles.map((handle) => handle.result()));
      await second.end('SIGTERM');
      assert.deepEqual([...new Set(results.map(({ end }) => end))], ['done']);
      assert.equal(world.sent.length, 8 * names.length, 'no command was sent under a second id');
      assert.equal(new Set(world.effects).size, world.effects.length);
    });

  it('M28 M20 REV-005 retires: the identity ends before anything else, the disks are proven to be erased, off is what was read', async () => {
    const world = new MetalWorld(['m1'], 'provisioned');
    const order: string[] = [];
    world.before = (call) => void (call.startsWith('send ') && order.push(`${world.identitiesEnded.length} ${call.slice(5)}`));
    workers = await runMetalWorkers(temporal, world);
    const run = await startRun(temporal.skipping, 'retire');
    handles.push(run);
    assert.equal((await run.result()).end, 'done');
    assert.deepEqual(order, ['1 prepare-boot', '1 set-boot', '1 power', '1 read-disks', '1 wipe', '1 power-off', '1 clean-up']);
    assert.deepEqual([world.machine().state, world.machine().power], ['retired', 'off']);
  });

  it('M20 a machine whose controller does not say that it is off is not let go: held for an operator, and clean, but not retired', async () => {
    const world = new MetalWorld(['m1'], 'provisioned');
    const unknown = create(site.BmcPowerResultSchema, { state: site.PowerState.UNKNOWN, observedAtMs: BigInt(Date.now()) });
    world.reply.set('power-off', () => ({ result: toBinary(site.BmcPowerResultSchema, unknown) }));
    workers = await runMetalWorkers(temporal, world);
    const run = await startRun(temporal.skipping, 'retire');
    handles.push(run);
    const { end, failure, remains } = await run.result();
    assert.deepEqual([end, failure, remains, world.machine().state], ['failed', 'power-not-off', 'clean', 'available']);
    const told = world.steps.filter(({ step, state }) => step === 'power-off' && state === 'failed').map(({ detail }) => detail);
    assert.ok(told.length >= 2, 'as a step, and on the way back');
    for (const detail of told) assert.match(detail, /the controller says UNKNOWN/);
  });

  it('inspects, and changes a password in two phases: stored, set, adopted', async () => {
    const world = new MetalWorld(['m1'], 'registered');
    workers = await runMetalWorkers(temporal, world);
    const inspected = await startRun(temporal.skipping, 'inspect');
    handles.push(inspected);
    assert.equal((await inspected.result()).end, 'done');
    assert.equal(world.machine().state, 'available');
    const rotated = await startRun(temporal.skipping, 'rotate-bmc');
    handles.push(rotated);
    const { end, runId } = await rotated.result();
    assert.deepEqual([end, world.adopted], ['done', [runId]]);
  });
});
