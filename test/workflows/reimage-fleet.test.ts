/** Many machines by one run: how many at once, who stops it, and that each is a run of its own. */
import assert from 'node:assert/strict';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import {
  cancel,
  type FleetResult,
  type FleetStatus,
  override,
  type ReimageFleetInput,
  status,
} from '../../workflows/reimage-fleet/messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { runMetalWorkers, words } from './metal-rig.ts';
import { testProfile } from './metal-rows.ts';
import { MetalWorld } from './metal-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

describe('reimageFleet', function () {
  this.timeout(120_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let count = 0;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    await workers?.stop();
    workers = undefined;
  });

  /** Machine ids say where they stand: number modulo four is the rack (MetalWorld). */
  async function begin(world: MetalWorld, over: Partial<ReimageFleetInput> = {}) {
    workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
    count += 1;
    const run = `fleet-${count}`;
    const input: ReimageFleetInput = { run, machines: [...world.machines.keys()], profile: { ...testProfile() }, ...words, ...over };
    return temporal.client.workflow.start<(one: ReimageFleetInput) => Promise<FleetResult>>('reimageFleet', {
      workflowId: workflowIds.reimageFleet(run),
      taskQueue: taskQueues.control,
      args: [input],
    });
  }
  const ids = (from: number, size: number): string[] => Array.from({ length: size }, (_, at) => `f${from + at}`);

  /** By the server's own times: how many of these machines were in work at once, at most. */
  async function mostAtOnce(machines: readonly string[]): Promise<number> {
    const spans = await Promise.all(
      machines.map(async (id) => {
        const { startTime, closeTime } = await temporal.client.workflow.getHandle(workflowIds.machineRun(id, 'provision')).describe();
        return { from: startTime.getTime(), to: closeTime?.getTime() ?? Number.POSITIVE_INFINITY };
      }),
    );
    return Math.max(...spans.map(({ from }) => spans.filter((other) => other.from <= from && other.to > from).length));
  }

  it('slides over the machines, never more at once than the whole and each rack allow, and ends when all are done', async () => {
    // Those of one rack beside each other: whoever goes by the list alone begins three of it.
    const rackOf = (id: string): number => Number(id.slice(1)) % 4;
    const machines = ids(0, 10).sort((a, b) => rackOf(a) - rackOf(b));
    const fleet = await begin(new MetalWorld(machines), { limits: { total: 3, perRack: 1, perSite: 3 } });
    const result = await fleet.result();
    assert.deepEqual([result.outcome, result.done, result.failed, result.notBegun], ['done', 10, 0, 0]);
    const atOnce = await mostAtOnce(machines);
    assert.ok(atOnce <= 3 && atOnce >= 2, String(atOnce));
    for (const rack of [0, 1, 2, 3]) assert.equal(await mostAtOnce(machines.filter((id) => rackOf(id) === rack)), 1, `rack ${rack}`);
  });

  it('begins no further machine once more failed than are tolerated, and says how many are left', async () => {
    const machines = ids(100, 8);
    const world = new MetalWorld(machines);
    for (const id of machines.slice(0, 2)) world.machine(id).state = 'retired';
    const fleet = await begin(world, { limits: { total: 1 }, stop: { maxFailures: 1 } });
    const result = await fleet.result();
    assert.deepEqual([result.outcome, result.done, result.failed, result.notBegun], ['stopped', 0, 2, 6]);
    assert.match(result.stopped, /^2 machines failed, 1 are tolerated$/);
    assert.deepEqual(
      result.failures.map(({ machineId, end }) => [machineId, end]),
      [
        ['f100', 'failed'],
        ['f101', 'failed'],
      ],
    );
  });

  it('a person lifts the rule while a machine is in work; cancelled with what runs, each ends by itself', async () => {
    const machines = ids(200, 6);
    const world = new MetalWorld(machines);
    world.machine('f200').state = 'retired';
    world.reply.set('read-disks', () => 'hold');
    const fleet = await begin(world, { limits: { total: 2 }, stop: { maxFailures: 0 } });
    const until = async (holds: (now: FleetStatus) => boolean): Promise<FleetStatus> => {
      for (;;) {
        const now = await fleet.query(status);
        if (holds(now)) return now;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    };
    const held = await until(({ stopped, inWork }) => stopped !== '' && inWork.length === 1);
    assert.deepEqual([held.failed, held.waiting, held.stopped], [1, 4, '1 machines failed, 0 are tolerated']);
    await fleet.executeUpdate(override, { args: [words] });
    assert.equal((await until(({ inWork }) => inWork.length === 2)).stopped, '');
    await fleet.executeUpdate(cancel, { args: [{ ...words, running: true }] });
    const result = await fleet.result();
    assert.deepEqual([result.outcome, result.failed, result.cancelled, result.notBegun], ['cancelled', 1, 2, 3]);
    for (const id of ['f201', 'f202']) assert.equal(world.machine(id).state, 'available', id);
  });
});
