/**
 * The runs whose histories are kept and replayed: whatever a later version of the workflows does, it must read these as they
 * happened. One file a scenario, named for the story.
 */
import type { WorkflowHandle } from '@temporalio/client';
import { createApproverSetActivities, createApproverSetSigningActivities } from '../../activities/approver-set-control.ts';
import { createBatchProducerActivities } from '../../activities/batch-producers.ts';
import { createBatchControlActivities } from '../../activities/batches-control.ts';
import { createBatchSigningActivities } from '../../activities/batches-signing.ts';
import { createAuditSigningActivities } from '../../activities/audit-signing.ts';
import { type BootControlPorts, type BootSigningPorts, createBootControlActivities, createBootSigningActivities } from '../../activities/boots.ts';
import { createCommandControlActivities } from '../../activities/commands-control.ts';
import { createSpecSigningActivities } from '../../activities/spec-signing.ts';
import { createSshSigningActivities } from '../../activities/ssh-signing.ts';
import { createCommandSigningActivities } from '../../activities/commands-signing.ts';
import { createIdentityActivities } from '../../activities/identities.ts';
import { createKeyRotationControlActivities } from '../../activities/key-rotation-control.ts';
import { createKeyRotationSigningActivities } from '../../activities/key-rotation-signing.ts';
import { createRotationControlActivities } from '../../activities/rotation-control.ts';
import { createRotationSigningActivities } from '../../activities/rotation-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import type { ExchangedKey } from '../../domain/rotation/key-exchanges.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import * as batch from '../../workflows/approve-batch/messages.ts';
import * as rotation from '../../workflows/rotate-command-root/messages.ts';
import * as keys from '../../workflows/rotate-key/messages.ts';
import type { TestTemporal } from '../harness/temporal.ts';
import { ApproverWorld } from '../workflows/approver-world.ts';
import { approveOverride, approveSet, createApprover, setOf } from '../workflows/approvers.ts';
import { startBatch, untilBatch, waitsForApprovals } from '../workflows/batch-rig.ts';
import { BatchWorld } from '../workflows/batch-world.ts';
import { CommandWorld } from '../workflows/command-world.ts';
import { startExchange, untilKeyStatus } from '../workflows/key-rig.ts';
import { KeyWorld } from '../workflows/key-world.ts';
import { runMetalWorkers } from '../workflows/metal-rig.ts';
import { MetalWorld } from '../workflows/metal-world.ts';
import { running, startRotation, untilStatus, type RotationHandle, type RunningWorkers } from '../workflows/rotation-rig.ts';
import { RotationWorld } from '../workflows/rotation-world.ts';
import { runEnrolmentWorkers } from '../workflows/enrolment-world.ts';
import { type EnrolmentStage, enrolmentScenarios, enrolmentWorldOf } from './enrolment-scenarios.ts';
import { metalScenarios, type MetalStage } from './metal-scenarios.ts';

export interface Stage extends MetalStage, EnrolmentStage {
  readonly world: RotationWorld;
  readonly commands: CommandWorld;
  readonly batches: BatchWorld;
  readonly approvers: ApproverWorld;
  /** A key of each kind. */
  readonly keys: Readonly<Record<ExchangedKey, KeyWorld>>;
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

const setSigners = [createApprover(), createApprover()] as const;

async function startChange(stage: Stage): Promise<WorkflowHandle> {
  const next = setOf([setSigners[1]], 1, 2);
  const change = {
    epoch: 2,
    approvers: next.approverKeys.map(({ spki }) => Buffer.from(spki).toString('base64')),
    threshold: 1,
    signatures: await Promise.all(setSigners.map((by) => approveSet(by, next, { epoch: 2 }))),
  };
  return stage.client.workflow.start('rotateApproverSet', { workflowId: workflowIds.rotateApproverSet, taskQueue: taskQueues.control, args: [{ ...words, change }] });
}

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
  'key-ticket-exchanged': (stage) => startExchange(stage.skipping, stage.keys.ticket),
  'key-workload-exchanged': (stage) => startExchange(stage.skipping, stage.keys.workload, [words]),
  'key-ca-renewed': (stage) => startExchange(stage.skipping, stage.keys.ca),
  'key-gateway-exchanged': (stage) => startExchange(stage.skipping, stage.keys.gateway),
  'key-ticket-forced-and-bad-signals': async (stage) => {
    const world = stage.keys.ticket;
    world.times = { promoteMs: 0, retireMs: 300 };
    world.stubborn.add('worker-1');
    const handle = await startExchange(stage.client, world);
    await untilKeyStatus(handle, (status) => status.behind !== null);
    await handle.signal('abortSignal', 'garbage');
    await handle.signal('nobodyKnowsThis', 1);
    for (const phase of ['processes', 'signers', 'confirm'] as const) await handle.executeUpdate(keys.force, { args: [{ phase, ...words }] });
    return handle;
  },
  'key-ticket-aborted': async (stage) => {
    const world = stage.keys.ticket;
    world.stubborn.add('worker-1');
    const handle = await startExchange(stage.client, world);
    await untilKeyStatus(handle, (status) => status.behind !== null);
    world.stubborn.clear();
    await handle.executeUpdate(keys.abort, { args: [words] });
    return handle;
  },
  'key-workload-switched-back': async (stage) => {
    const world = stage.keys.workload;
    world.times = { promoteMs: 100, retireMs: 60_000 };
    const handle = await startExchange(stage.client, world);
    await untilKeyStatus(handle, (status) => status.phase === 'waiting-retire');
    world.times = { promoteMs: 100, retireMs: 300 };
    await handle.executeUpdate(keys.abort, { args: [words] });
    return handle;
  },
  'key-ticket-paused-and-held': async (stage) => {
    const world = stage.keys.ticket;
    world.times = { promoteMs: 0, retireMs: 300 };
    let broken = true;
    world.before = (call) => {
      if (call === 'promote' && broken) throw new ControlError('INVALID_STATE', 'another exchange has replaced it');
    };
    const handle = await startExchange(stage.client, world);
    await untilKeyStatus(handle, (status) => status.blocked !== null);
    await handle.signal('pause', words);
    broken = false;
    await handle.signal('resume');
    return handle;
  },
  'checkpoint-audit': (stage) => stage.client.workflow.start('checkpointAudit', { workflowId: 'history-checkpoint', taskQueue: taskQueues.control }),
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
  'revoke-ssh-certificate': (stage) =>
    stage.client.workflow.start('revokeSshCertificate', {
      workflowId: workflowIds.revokeSshCertificate('4711'),
      taskQueue: taskQueues.control,
      args: [{ serial: '4711', ...words }],
    }),
  'set-node-credential': (stage) =>
    stage.client.workflow.start('setNodeCredential', {
      workflowId: workflowIds.setNodeCredential('node-00001', 'k8s-join'),
      taskQueue: taskQueues.control,
      args: [{ nodeId: 'node-00001', name: 'k8s-join', ref: 'secret://k8s/eu-1/token', ...words }],
    }),
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
  'batch-released-in-waves': async (stage) => {
    const id = stage.batches.add('history-waves', { size: 12, wave: 5 });
    const handle = await startBatch(stage.client, id);
    await waitsForApprovals(handle);
    await handle.executeUpdate(batch.approve, { args: [stage.batches.approval(0, id)] });
    await handle.signal(batch.approveSignal, stage.batches.approval(1, id));
    return handle;
  },
  'batch-approved-through-the-api-and-bad-signals': async (stage) => {
    const id = stage.batches.add('history-api', { size: 3 });
    const handle = await startBatch(stage.client, id);
    await waitsForApprovals(handle);
    await handle.signal('approveSignal', 'garbage');
    await handle.signal('nobodyKnowsThis', 1);
    await stage.batches.approveByApi(0, id);
    await handle.signal(batch.approvalRecorded);
    await untilBatch(handle, ({ approvals }) => approvals.length === 1);
    await stage.batches.approveByApi(2, id);
    return handle;
  },
  'batch-expired': async (stage) => startBatch(stage.client, stage.batches.add('history-expired', { endsInMs: 1_000 })),
  'batch-rejected': async (stage) => {
    const handle = await startBatch(stage.client, stage.batches.add('history-rejected'));
    await waitsForApprovals(handle);
    await handle.signal(batch.reject, words);
    return handle;
  },
  'batch-stopped-by-its-rule': async (stage) => {
    const id = stage.batches.add('history-stopped', { size: 6, wave: 3, required: 1 });
    stage.batches.ends = 'failed';
    const handle = await startBatch(stage.client, id);
    await waitsForApprovals(handle);
    await handle.executeUpdate(batch.approve, { args: [stage.batches.approval(0, id)] });
    return handle;
  },
  'approver-set-changed': async (stage) => startChange(stage),
  'approver-set-excluded': async (stage) => {
    const late = stage.approvers.nodes.get('node-2');
    if (late !== undefined) late.obedient = false;
    const handle = await startChange(stage);
    const behind = async (): Promise<{ rotationId: string; behind: unknown } | undefined> =>
      handle.query<{ rotationId: string; behind: unknown }>('status').catch(() => undefined);
    let status = await behind();
    while (status === undefined || status.behind === null) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      status = await behind();
    }
    const about = { rotationId: status.rotationId, kind: 'exclude', subject: 'node-2', reason: words.reason };
    await handle.executeUpdate('exclude', { args: [{ node: 'node-2', ...words, approvals: [await approveOverride(setSigners[1], about)] }] });
    return handle;
  },
  'reboot-nodes': async (stage) => {
    stage.commands.before = (call) => {
      if (call !== 'producers.create') return;
      for (const [id, { leaves }] of stage.commands.batches) if (!stage.batches.stored.has(id)) stage.batches.add(id, { size: leaves.length });
    };
    const handle = await stage.client.workflow.start('rebootNodes', {
      workflowId: workflowIds.rebootNodes('history'),
      taskQueue: taskQueues.control,
      args: [{ nodes: 'all', ...words }],
    });
    await until(() => stage.commands.batchOf.size === stage.commands.nodeIds.length);
    const [id] = stage.batches.stored.keys();
    for (const by of [0, 1]) await stage.batches.approveByApi(by, String(id));
    await until(() => stage.batches.sent.length === stage.commands.nodeIds.length);
    stage.commands.endAll('done');
    return handle;
  },
  'reconcile-batches': async (stage) => {
    stage.batches.add('history-unwatched', { endsInMs: 1 });
    return stage.client.workflow.start('reconcileBatches', { workflowId: 'history-reconcile-batches', taskQueue: taskQueues.control });
  },
  'reconcile-boots': (stage) => stage.client.workflow.start('reconcileBoots', { workflowId: 'history-reconcile-boots', taskQueue: taskQueues.control }),
  'resign-expiring': (stage) => stage.client.workflow.start('resignExpiring', { workflowId: 'history-resign', taskQueue: taskQueues.control }),
  'reconcile-commands': (stage) => stage.client.workflow.start('reconcileCommands', { workflowId: 'history-reconcile', taskQueue: taskQueues.control }),
  ...metalScenarios,
  ...enrolmentScenarios,
});

/** Runs one scenario to its end, however it ends. */
export async function runScenario(temporal: TestTemporal, name: string): Promise<WorkflowHandle> {
  const stage: Stage = { client: temporal.client, skipping: temporal.skipping, world: new RotationWorld(), commands: new CommandWorld(25), keys: keysOfEachKind(), batches: new BatchWorld(), approvers: new ApproverWorld(setOf([setSigners[0]], 1)), metal: new MetalWorld(['m1', 'm2', 'm3', 'm4']), enrolment: enrolmentWorldOf(name) };
  const workers = await workersOf(name, temporal, stage);
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

function workersOf(name: string, temporal: TestTemporal, stage: Stage): Promise<RunningWorkers> {
  if (Object.hasOwn(metalScenarios, name)) return runMetalWorkers(temporal, stage.metal);
  if (Object.hasOwn(enrolmentScenarios, name)) return runEnrolmentWorkers(temporal, stage.enrolment);
  return runEveryWorker(temporal, stage);
}

/** A quarantined machine whose boot server was not told. */
const oneUntold: BootControlPorts & BootSigningPorts = {
  boots: {
    look: async () => [
      { machineId: 'm1', siteId: 'berlin', generation: 4, agentId: 'agent-a', runWorkflowId: null, telling: { kind: 'tell', answer: 'hold', runId: 'aaaaaaaaaaaa', n: 1, failed: 0 } },
    ],
    orders: async () => [{ id: 'machine/m1/boot/4/5f0c.1', nodeId: 'agent-a', kind: 'boot.cleanUp', payload: new Uint8Array() }],
  },
  workflows: { isRunning: async () => false },
  queue: { enqueue: async (items) => ({ enqueued: items.length, existing: 0 }) },
  now: Date.now,
};

const keysOfEachKind = (): Stage['keys'] => ({
  ca: new KeyWorld('ca'),
  gateway: new KeyWorld('gateway'),
  ticket: new KeyWorld('ticket'),
  workload: new KeyWorld('workload'),
});

/** One pair of workers: each activity goes to the world of the key it names. */
function keyActivities(worlds: Stage['keys'], create: (world: KeyWorld) => Activities): Activities {
  const byKey = Object.fromEntries(Object.entries(worlds).map(([key, world]) => [key, create(world)]));
  const names = Object.keys(byKey['ca'] ?? {});
  return Object.fromEntries(
    names.map((name) => [name, (order: { key: ExchangedKey }) => byKey[order.key]?.[name]?.(order as never) as Promise<unknown>]),
  );
}

type Activities = Record<string, (...args: never[]) => Promise<unknown>>;

async function runEveryWorker(temporal: TestTemporal, { world, commands, keys: worlds, batches, approvers }: Stage): Promise<RunningWorkers> {
  const control = await temporal.createWorker({
    taskQueue: taskQueues.control,
    activities: { ...createRotationControlActivities(world), ...keyActivities(worlds, createKeyRotationControlActivities), ...createCommandControlActivities(commands), ...createIdentityActivities(commands), ...createBatchProducerActivities(commands), ...createBatchControlActivities(batches), ...createApproverSetActivities(approvers), ...createBootControlActivities(oneUntold) },
  });
  const signing = await temporal.createWorker({
    taskQueue: taskQueues.signing,
    activities: { ...createRotationSigningActivities(world), ...keyActivities(worlds, createKeyRotationSigningActivities), ...createAuditSigningActivities({ audit: { checkpoint: async () => [{ tenant: 'deployment', number: 1, events: 3 }] } }), ...createCommandSigningActivities(commands), ...createBatchSigningActivities(batches), ...createApproverSetSigningActivities(approvers), ...createSshSigningActivities(commands), ...createSpecSigningActivities(commands), ...createBootSigningActivities(oneUntold) },
    workflowBundle: undefined as never,
  });
  return running([control, signing]);
}
