/**
 * The kept runs on machines: each kind to its end, and what operators do to them. All of them on a site in memory, with its own workers, as
 * a run's batch is decided there.
 */
import { create, toBinary } from '@bufbuild/protobuf';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { ControlError } from '../../domain/errors.ts';
import { site } from '../../proto/index.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import * as fleet from '../../workflows/reimage-fleet/messages.ts';
import * as machine from '../../workflows/shared/machine-messages.ts';
import { invokeStep, requestStep } from '../domain/metal/profiles.ts';
import { startRun, untilRun, words } from '../workflows/metal-rig.ts';
import { testProfile } from '../workflows/metal-rows.ts';
import type { MetalWorld } from '../workflows/metal-world.ts';

export interface MetalStage {
  readonly client: Client;
  readonly skipping: Client;
  /** Machines m1 to m4, available. */
  readonly metal: MetalWorld;
}

const until = async (holds: () => boolean): Promise<void> => {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 25));
};
const waitsFor = (world: MetalWorld, act: string): Promise<void> => until(() => [...world.waits.keys()].some((id) => id.includes(`/${act}.`)));

const reimage = ({ client, metal }: MetalStage, limits: Partial<fleet.FleetLimits>): Promise<WorkflowHandle> =>
  client.workflow.start('reimageFleet', {
    workflowId: workflowIds.reimageFleet('history'),
    taskQueue: taskQueues.control,
    args: [{ run: 'history', machines: [...metal.machines.keys()], profile: { ...testProfile() }, limits, stop: { maxFailures: 0 }, ...words }],
  });

async function untilFleet(handle: WorkflowHandle, holds: (status: fleet.FleetStatus) => boolean): Promise<void> {
  for (;;) {
    const status = await handle.query<fleet.FleetStatus>('status').catch(() => undefined);
    if (status !== undefined && holds(status)) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

export const metalScenarios: Readonly<Record<string, (stage: MetalStage) => Promise<WorkflowHandle>>> = Object.freeze({
  'machine-provisioned': ({ skipping }) => startRun(skipping, 'provision'),
  'machine-provisioned-by-approvers-and-every-second-chance': async ({ client, metal }) => {
    metal.approval = { held: true, state: 'pending' };
    metal.netboots = (boot) => boot === 2;
    metal.systemJoins = (by) => by === 'disk';
    metal.reply.set('power', (n) => (n === 1 ? { state: 'interrupted', error: 'the agent was replaced' } : {}));
    const handle = await startRun(client, 'provision', { over: { profile: testProfile({ diagnose: { dcgm: { level: 1, required: false } } }) } });
    await untilRun(handle, ({ phase }) => phase === 'waiting-approvals');
    metal.approval.state = 'approved';
    return handle;
  },
  'machine-provisioned-with-steps-of-its-profile': ({ skipping, metal }) => {
    const unready = toBinary(site.SiteHttpProxyResultSchema, create(site.SiteHttpProxyResultSchema, { status: 503 }));
    metal.reply.set('request', (n) => (n === 1 ? { result: unready } : {}));
    const steps = [
      invokeStep(),
      requestStep({ name: 'poll' }, { method: 'GET', body: '' }),
      requestStep({ name: 'restart', sends: [], do: { 'service.restart': { unit: 'a.service' } } }),
    ];
    return startRun(skipping, 'provision', { over: { profile: testProfile({ steps }) } });
  },
  'machine-provision-overridden-and-bad-signals': async ({ client, metal }) => {
    metal.before = (call) => {
      if (call === 'send set-boot') throw new ControlError('INVALID_STATE', 'the controller is not trusted', { details: { reason: 'no-pin' } });
    };
    metal.netboots = () => false;
    const handle = await startRun(client, 'provision');
    await untilRun(handle, ({ phase }) => phase === 'held');
    await handle.signal('overrideSignal', 'garbage');
    await handle.signal('nobodyKnowsThis', 1);
    await handle.executeUpdate(machine.override, { args: [{ step: 'boot', ...words }] });
    // Nothing was turned on: whoever waits for the ramdisk says that he did it by hand, and the wait begins anew.
    await untilRun(handle, ({ step }) => step === 'ramdisk-join');
    const [run] = metal.runsById.values();
    if (run?.entry == null) throw new Error('no boot entry was made');
    run.entry = { ...run.entry, usedAt: Date.now() };
    await handle.signal(machine.overrideSignal, { step: 'ramdisk-join', ...words });
    await untilRun(handle, ({ messages }) => messages.length === 2);
    Object.assign(metal.machine(), { role: 'ramdisk', generation: 2, connected: true });
    return handle;
  },
  'machine-provision-cancelled': async ({ client, metal }) => {
    metal.reply.set('read-disks', () => 'hold');
    const handle = await startRun(client, 'provision');
    await waitsFor(metal, 'read-disks');
    await handle.executeUpdate(machine.cancel, { args: [words] });
    return handle;
  },
  'machine-provision-given-up': async ({ client, metal }) => {
    metal.reply.set('wipe', () => 'hold');
    const handle = await startRun(client, 'provision');
    await waitsFor(metal, 'wipe');
    for (const command of metal.stored.values()) if (command.state === 'open') command.state = 'acked';
    await handle.signal(machine.giveUpSignal, words);
    return handle;
  },
  'machine-provision-given-up-behind-its-image': async ({ client, metal }) => {
    metal.systemJoins = () => false;
    const handle = await startRun(client, 'provision');
    await untilRun(handle, ({ phase }) => phase === 'waiting-node');
    await handle.executeUpdate(machine.giveUp, { args: [words] });
    return handle;
  },
  'machine-provision-cancelled-by-the-server': async ({ client, metal }) => {
    metal.reply.set('deploy', () => 'hold');
    const handle = await startRun(client, 'provision');
    await waitsFor(metal, 'deploy');
    await handle.cancel();
    return handle;
  },
  'machine-provision-refused-by-approvers': async ({ client, metal }) => {
    metal.approval = { held: true, state: 'cancelled' };
    return startRun(client, 'provision');
  },
  'machine-retired': async ({ skipping, metal }) => {
    metal.machine().state = 'provisioned';
    return startRun(skipping, 'retire');
  },
  'machine-retirement-given-up-on-its-way-back': async ({ client, metal }) => {
    metal.machine().state = 'provisioned';
    metal.reply.set('wipe', () => ({ state: 'failed', error: 'nvme format exited 1' }));
    metal.reply.set('power-off', () => 'hold');
    const handle = await startRun(client, 'retire');
    await waitsFor(metal, 'power-off');
    await handle.executeUpdate(machine.giveUp, { args: [words] });
    return handle;
  },
  'machine-inspected': ({ client }) => startRun(client, 'inspect'),
  'machine-bmc-rotated': ({ client }) => startRun(client, 'rotate-bmc'),
  'fleet-reimaged-paused-and-forgiven': async (stage) => {
    const { metal } = stage;
    metal.machine('m1').state = 'retired';
    metal.reply.set('read-disks', (_n, { id }) => (id.includes('/m2/') ? 'hold' : {}));
    const handle = await reimage(stage, { total: 2 });
    await untilFleet(handle, ({ stopped, inWork }) => stopped !== '' && inWork.length === 1);
    await handle.signal(fleet.pause, words);
    await handle.signal(fleet.pause, 'garbage' as never);
    await handle.executeUpdate(fleet.override, { args: [words] });
    await handle.signal(fleet.resume);
    await waitsFor(metal, 'read-disks');
    for (const [id, { workflowId, activityId }] of metal.waits) {
      metal.finish(id);
      // Where nobody waits any more, the attempt has read the end itself.
      await stage.client.activity.complete({ workflowId, activityId }, { state: 'done', error: '' }).catch(() => undefined);
    }
    return handle;
  },
  'fleet-stopped-by-its-rule': (stage) => {
    stage.metal.machine('m1').state = 'retired';
    return reimage(stage, { total: 1 });
  },
  'fleet-cancelled-with-what-runs': async (stage) => {
    stage.metal.reply.set('read-disks', () => 'hold');
    const handle = await reimage(stage, { total: 2, perRack: 1 });
    await untilFleet(handle, ({ inWork }) => inWork.length === 2);
    await until(() => [...stage.metal.waits.keys()].filter((id) => id.includes('/read-disks.')).length === 2);
    await handle.executeUpdate(fleet.cancel, { args: [{ ...words, running: true }] });
    return handle;
  },
});
