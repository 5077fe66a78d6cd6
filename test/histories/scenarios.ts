/**
 * The runs whose histories are kept and replayed: whatever a later version of the workflows does, it must read these as they
 * happened. One file a scenario, named for the story.
 */
import type { Client, WorkflowHandle } from '@temporalio/client';
import { createCommandControlActivities } from '../../activities/commands-control.ts';
import { createCommandSigningActivities } from '../../activities/commands-signing.ts';
import { createIdentityActivities } from '../../activities/identities.ts';
import { createRotationControlActivities } from '../../activities/rotation-control.ts';
import { createRotationSigningActivities } from '../../activities/rotation-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import * as rotation from '../../workflows/rotate-command-root/messages.ts';
import type { TestTemporal } from '../harness/temporal.ts';
import { CommandWorld } from '../workflows/command-world.ts';
import { running, startRotation, untilStatus, type RotationHandle, type RunningWorkers } from '../workflows/rotation-rig.ts';
import { RotationWorld } from '../workflows/rotation-world.ts';

export interface Stage {
  readonly client: Client;
  readonly skipping: Client;
  readonly world: RotationWorld;
  readonly commands: CommandWorld;
}

const words = { actor: 'ann', reason: 'a test' };
const shortTimes = { overlapMs: 500, dropMarginMs: 10, workerLifetimeMs: 400 };
const until = async (holds: () => boolean): Promise<void> => {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 25));
};
const oneBehind = (stage: Stage): void => {
  stage.world.times = shortTimes;
  stage.world.nodes.set('node-late', { trustVersion: 1, connected: true, obedient: false });
};
const waitsForFleet = (handle: RotationHandle): Promise<rotation.RotationStatus> =>
  untilStatus(handle, (status) => status.phase === 'waiting-fleet' && status.behind !== null);
const catchUp = (world: RotationWorld): void => {
  for (const node of world.nodes.values()) node.obedient = true;
  world.publish();
};

const runCommand = (stage: Stage, nodes: readonly string[] | 'all'): Promise<WorkflowHandle> =>
  stage.client.workflow.start('runCommand', {
    workflowId: workflowIds.runCommand(`history-${nodes === 'all' ? 'all' : nodes.length}`),
    taskQueue: taskQueues.control,
    args: [{ kind: 'inventory.refresh', nodes, actor: 'ann' }],
  });

export const scenarios: Readonly<Record<string, (stage: Stage) => Promise<WorkflowHandle>>> = Object.freeze({
  'rotation-a-day': async (stage) => startRotation(stage.skipping),
  'rotation-started-with-words': async (stage) => startRotation(stage.skipping, [words]),
  'rotation-forced-and-excluded': async (stage) => {
    oneBehind(stage);
    const handle = await startRotation(stage.client);
    await waitsForFleet(handle);
    await handle.executeUpdate(rotation.exclude, { args: [{ node: 'node-late', ...words }] });
    await handle.executeUpdate(rotation.force, { args: [{ phase: 'confirm', ...words }] });
    return handle;
  },
  'rotation-aborted-after-add': async (stage) => {
    oneBehind(stage);
    const handle = await startRotation(stage.client);
    await waitsForFleet(handle);
    for (const node of stage.world.nodes.values()) node.obedient = true;
    await handle.executeUpdate(rotation.abort, { args: [words] });
    return handle;
  },
  'rotation-aborted-after-switch': async (stage) => {
    stage.world.times = { ...shortTimes, overlapMs: 60_000 };
    const handle = await startRotation(stage.client);
    await untilStatus(handle, (status) => status.phase === 'waiting-drop');
    stage.world.times = shortTimes;
    await handle.executeUpdate(rotation.abort, { args: [words] });
    return handle;
  },
  'rotation-paused-held-and-bad-signals': async (stage) => {
    oneBehind(stage);
    let broken = true;
    stage.world.before = (call) => {
      if (call === 'roots.switch' && broken) throw new ControlError('STALE_BUNDLE', 'an older key bundle');
    };
    const handle = await startRotation(stage.client);
    await waitsForFleet(handle);
    await handle.signal(rotation.pause, words);
    await handle.signal('forceSignal', 'garbage');
    await handle.signal('nobodyKnowsThis', 1);
    catchUp(stage.world);
    await handle.signal(rotation.resume);
    await untilStatus(handle, (status) => status.blocked !== null);
    broken = false;
    await handle.signal(rotation.resume);
    return handle;
  },
  'rotation-held-until-repaired': async (stage) => {
    stage.world.times = shortTimes;
    let broken = true;
    stage.world.before = (call) => {
      if (!broken || (call !== 'roots.switch' && call !== 'roots.assertFresh')) return;
      throw new ControlError('STALE_BUNDLE', 'an older key bundle', { details: { reason: 'bundle-replaced' } });
    };
    const handle = await startRotation(stage.client);
    await untilStatus(handle, (status) => status.blocked !== null);
    await handle.signal(rotation.resume);
    await untilStatus(handle, (status) => status.blocked === null);
    await untilStatus(handle, (status) => status.blocked !== null);
    broken = false;
    return handle;
  },
  'revoke-identity': async (stage) => {
    const nodeId = 'node-00001';
    const handle = await stage.client.workflow.start('revokeIdentity', {
      workflowId: workflowIds.revokeIdentity(nodeId),
      taskQueue: taskQueues.control,
      args: [{ nodeId, ...words }],
    });
    await until(() => stage.commands.revokes > 0);
    stage.commands.openSessions = 0;
    return handle;
  },
  'run-command-few': async (stage) => {
    const handle = await runCommand(stage, ['node-00001', 'node-00002']);
    await until(() => stage.commands.waits.size === 2);
    for (const wait of stage.commands.waits.values()) {
      await stage.client.activity.complete({ workflowId: wait.workflowId, activityId: wait.activityId }, { state: 'done', error: '' });
    }
    return handle;
  },
  'run-command-all': async (stage) => {
    const handle = await runCommand(stage, 'all');
    await until(() => stage.commands.entries.size === stage.commands.nodeIds.length);
    stage.commands.endAll('done');
    return handle;
  },
  'run-command-cancelled': async (stage) => {
    const handle = await runCommand(stage, ['node-00001', 'node-00002', 'node-00003']);
    await until(() => stage.commands.waits.size === 3);
    await handle.cancel();
    return handle;
  },
  'resign-expiring': (stage) => stage.client.workflow.start('resignExpiring', { workflowId: 'history-resign', taskQueue: taskQueues.control }),
  'reconcile-commands': (stage) => stage.client.workflow.start('reconcileCommands', { workflowId: 'history-reconcile', taskQueue: taskQueues.control }),
});

/** Runs one scenario to its end, however it ends. */
export async function runScenario(temporal: TestTemporal, name: string): Promise<WorkflowHandle> {
  const stage: Stage = { client: temporal.client, skipping: temporal.skipping, world: new RotationWorld(), commands: new CommandWorld(25) };
  const workers = await runEveryWorker(temporal, stage);
  try {
    const play = scenarios[name];
    if (play === undefined) throw new Error(`no scenario ${name}`);
    const handle = await play(stage);
    await handle.result().catch(() => undefined);
    return handle;
  } finally {
    await workers.stop();
  }
}

async function runEveryWorker(temporal: TestTemporal, { world, commands }: Stage): Promise<RunningWorkers> {
  const control = await temporal.createWorker({
    taskQueue: taskQueues.control,
    activities: { ...createRotationControlActivities(world), ...createCommandControlActivities(commands), ...createIdentityActivities(commands) },
  });
  const signing = await temporal.createWorker({
    taskQueue: taskQueues.signing,
    activities: { ...createRotationSigningActivities(world), ...createCommandSigningActivities(commands) },
    workflowBundle: undefined as never,
  });
  return running([control, signing]);
}
