/**
 * What operators end behind a workflow's back reaches the boot server: the real rows, the real workflow and its activities, a real boot server
 * that does what the log of its agent says, and a machine that asks it what to boot.
 */
import assert from 'node:assert/strict';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack, anyUnpack } from '@bufbuild/protobuf/wkt';
import { ApplicationFailure } from '@temporalio/common';
import { createBatchWatch } from '../../activities/adapters/batches.ts';
import { createBoots } from '../../activities/adapters/boots.ts';
import { createCommandQueue } from '../../activities/adapters/commands.ts';
import {
  type BootControlPorts,
  type BootSigningPorts,
  createBootControlActivities,
  createBootSigningActivities,
} from '../../activities/boots.ts';
import { createBootHandlers } from '../../daemon/site/boot/handlers.ts';
import type { BootServer } from '../../daemon/site/boot/server.ts';
import { commandStates } from '../../domain/commands/states.ts';
import { readOpenCommands } from '../../drizzle/queries/dispatch.ts';
import { CommandBodySchema, protocolRegistry, site } from '../../proto/index.ts';
import { enqueueCommands } from '../../services/command-queue.ts';
import { listUntoldBoots } from '../../services/metal/boot-told.ts';
import { finishRun, overrideMachine, planRun, quarantineMachine } from '../../services/metal/index.ts';
import type { RunPlan } from '../../services/metal/types.ts';
import { taskQueues } from '../../temporal.config.ts';
import type { BootsReconciled } from '../../workflows/reconcile-boots/workflow.ts';
import { answerIn, type BootStage, bootStage, context, prepareOf, scriptOf } from '../daemon/boot-stage.ts';
import { createDeployment, type TestDeployment } from '../harness/deployment.ts';
import { useDatabase } from '../harness/postgres.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { batchWorker } from '../services/batch-support.ts';
import { availableMachine, commandIdOf, runOf } from '../services/metal/support.ts';
import { connect, enrol, trustDomain } from '../services/support.ts';
import { type RunningWorkers, running } from './rotation-rig.ts';

describe('the schedule that tells boot servers', function () {
  this.timeout(120_000);
  const used = useDatabase();
  useWorkflows();
  let temporal: TestTemporal;
  let deployment: TestDeployment;
  let stage: BootStage;
  let server: BootServer;
  let workers: RunningWorkers | undefined;
  let runs = 0;

  before(async () => {
    temporal = await sharedTemporal();
    deployment = await createDeployment({ now: 1_799_999_000_000 });
    const agent = await enrol(used.db, 'agent', { role: 'site', now: Date.now() });
    await connect(used.db, agent, { role: 'site', now: null });
  });
  beforeEach(async () => {
    await used.db.query({ text: `update nodes set state = 'active' where id = 'agent'` });
    stage = await bootStage(deployment);
    server = await stage.start();
  });
  afterEach(async () => {
    await workers?.stop();
    workers = undefined;
    await stage.close();
  });

  const macOf = (id: string): string => `00:1b:21:00:00:${id.slice(-2)}`;
  const answer = async (id: string) => answerIn(await scriptOf(server, macOf(id)));
  const ports = (over: Partial<BootControlPorts & BootSigningPorts> = {}): BootControlPorts & BootSigningPorts => ({
    boots: createBoots({ db: used.db }),
    workflows: createBatchWatch(temporal.client, (workflowId) => workflowId),
    now: Date.now,
    queue: {
      enqueue: async (items) => {
        const worker = await batchWorker(used.db);
        return createCommandQueue({ db: used.db, now: Date.now, worker, trustDomain: () => trustDomain, poke: () => {} }).enqueue(items);
      },
    },
    ...over,
  });
  const work = async (own: BootControlPorts & BootSigningPorts = ports()): Promise<void> => {
    const control = { taskQueue: taskQueues.control, activities: createBootControlActivities(own), workflowBundle: undefined as never };
    const signing = { taskQueue: taskQueues.signing, activities: createBootSigningActivities(own), workflowBundle: undefined as never };
    workers = running([await temporal.createWorker(control), await temporal.createWorker(signing)]);
  };
  const reconcile = async (): Promise<BootsReconciled> => {
    runs += 1;
    return temporal.client.workflow.execute<() => Promise<BootsReconciled>>('reconcileBoots', {
      workflowId: `reconcile-boots-${runs}`,
      taskQueue: taskQueues.control,
      args: [],
    });
  };
  /** The agent does what its log says, in its order; answers the kinds of what it did. */
  const perform = async (): Promise<string[]> => {
    const handlers = createBootHandlers({ desk: server.desk });
    const done: string[] = [];
    for (const { id, kind, body } of await readOpenCommands(used.db, [{ nodeId: 'agent', afterSeq: 0 }], 100)) {
      const { payload } = fromBinary(CommandBodySchema, body);
      const message = payload === undefined ? undefined : anyUnpack(payload, protocolRegistry);
      if (message === undefined) throw new Error(`${id} has no payload`);
      const end = await handlers[kind as keyof typeof handlers].run(message, context(id));
      const state = end.kind === 'succeeded' ? commandStates.done : commandStates.failed;
      await used.db.query({ text: 'update node_commands set state = $2, acked_at = now(), finished_at = now() where id = $1' }, [
        id,
        state,
      ]);
      done.push(kind);
    }
    return done;
  };
  const send = async (plan: RunPlan, act: 'prepare-boot' | 'clean-up', told = site.BootAnswer.HOLD): Promise<void> => {
    const { machineId: nodeId, runId } = plan;
    const cleanUp = create(site.BootCleanUpSchema, { nodeId, runId, macAddresses: [macOf(nodeId)], answer: told });
    const payload =
      act === 'clean-up'
        ? anyPack(site.BootCleanUpSchema, cleanUp)
        : anyPack(site.BootPrepareRamdiskSchema, prepareOf({ nodeId, runId, macAddresses: [macOf(nodeId)] }));
    const kind = act === 'clean-up' ? 'boot.cleanUp' : 'boot.prepareRamdisk';
    const now = Date.now();
    const id = commandIdOf(plan, `${act}.1`);
    const command = { id, nodeId: 'agent', kind, payload: toBinary(AnySchema, payload), deadlineMs: now + 60_000, requestedBy: 'olga' };
    await enqueueCommands({ db: used.db, worker: await batchWorker(used.db), trustDomain, now, commands: [command] });
    await perform();
  };
  const begin = async (id: string): Promise<RunPlan> => {
    await availableMachine(used.db, id, { macAddresses: [macOf(id)] });
    const plan = await planRun(used.db, runOf(id, 'provision'));
    await send(plan, 'prepare-boot');
    return plan;
  };
  const end = { actor: 'olga', reason: 'workflow-gone: a test', now: Date.now() };
  /** Given up by the database: what its image would be started by is on the machine's disk. */
  const provisioned = async (id: string): Promise<RunPlan> => {
    const plan = await begin(id);
    await send(plan, 'clean-up', site.BootAnswer.LOCAL);
    await finishRun(used.db, { runId: plan.runId, end: 'done', ...end });
    await used.db.query(
      {
        text: `insert into metal_evidence (id, run_id, node_id, command_id, kind, body, signature, body_sha256, signer_serial, complete, finished_at, recorded_at)
               values ($1, $1, $2, $1, 'deploy', '', '', '', '', true, now(), now())`,
      },
      [plan.runId, id],
    );
    return plan;
  };

  it('M6 M58 a run that was given up where its workflow is gone: the entry goes, and the machine is told what is left of it', async () => {
    await work();
    const plan = await begin('m01');
    assert.equal(await answer('m01'), 'ramdisk');
    await finishRun(used.db, { runId: plan.runId, end: 'failed', ...end });
    assert.equal(await answer('m01'), 'ramdisk', 'nobody has told the boot server');
    assert.deepEqual(await reconcile(), { sent: 1, underWay: 0, away: 0, failing: 0 });
    assert.deepEqual(await reconcile(), { sent: 0, underWay: 1, away: 0, failing: 0 }, 'one command for a difference');
    assert.deepEqual(await perform(), ['boot.cleanUp']);
    assert.equal(await answer('m01'), 'local', 'nothing that destroys was started');
    assert.deepEqual(await reconcile(), { sent: 0, underWay: 0, away: 0, failing: 0 });
  });

  it('M6 M68 a machine at rest that is quarantined does not start its disk any more, nor when a person lets it go', async () => {
    await work();
    await provisioned('m02');
    assert.deepEqual(await reconcile(), { sent: 0, underWay: 0, away: 0, failing: 0 });
    assert.equal(await answer('m02'), 'local');
    await used.db.transaction((tx) => quarantineMachine(tx, { nodeId: 'm02', reason: 'second-join: a test', now: Date.now() }));
    assert.equal((await reconcile()).sent, 1);
    assert.deepEqual(await perform(), ['boot.cleanUp']);
    assert.equal(await answer('m02'), 'hold');
    await overrideMachine(used.db, { machineId: 'm02', actor: 'olga', reason: 'I have checked', now: Date.now() });
    assert.equal((await reconcile()).sent, 0);
    assert.equal(await answer('m02'), 'hold');
  });

  it('M6 a machine whose run has a workflow that lives is left alone; when that was terminated, it is held', async () => {
    await work();
    const plan = await begin('m03');
    const workflow = await temporal.client.workflow.start('provisionMachine', {
      workflowId: plan.workflowId,
      taskQueue: 'nobody-polls-this',
      args: [],
    });
    await send(plan, 'clean-up', site.BootAnswer.LOCAL);
    assert.equal((await reconcile()).sent, 0);
    assert.equal(await answer('m03'), 'local', 'its image is about to be started');
    await workflow.terminate('a test');
    assert.equal((await reconcile()).sent, 1);
    await perform();
    assert.equal(await answer('m03'), 'hold');
    await finishRun(used.db, { runId: plan.runId, end: 'failed', remains: 'dirty', ...end });
    assert.deepEqual([(await reconcile()).sent, await answer('m03')], [0, 'hold']);
  });

  it('M6 an agent that is away is told when it is back, and shown until then', async () => {
    await work();
    await provisioned('m04');
    await used.db.transaction((tx) => quarantineMachine(tx, { nodeId: 'm04', reason: 'a look', now: Date.now() }));
    await used.db.query({ text: `update node_presence set last_seen_at = now() - interval '1 hour' where node_id = 'agent'` });
    assert.deepEqual(await reconcile(), { sent: 0, underWay: 0, away: 1, failing: 0 });
    const shown = await listUntoldBoots(used.db, { now: Date.now(), limit: 100 });
    assert.deepEqual(shown, [{ agentId: 'agent', connected: false, machineIds: ['m04'], machines: 1, failed: 0, error: '' }]);
    await used.db.query({ text: `update node_presence set last_seen_at = now() where node_id = 'agent'` });
    assert.deepEqual(await reconcile(), { sent: 1, underWay: 0, away: 0, failing: 0 });
    await perform();
    assert.equal(await answer('m04'), 'hold');
    assert.deepEqual(await listUntoldBoots(used.db, { now: Date.now(), limit: 100 }), []);
  });

  for (const at of ['before', 'behind'] as const)
    it(`M38 workers that are killed ${at} each call tell a boot server once`, async () => {
      const id = at === 'before' ? 'm05' : 'm06';
      await provisioned(id);
      await used.db.transaction((tx) => quarantineMachine(tx, { nodeId: id, reason: 'a look', now: Date.now() }));
      const real = ports();
      const lost = new Set<string>();
      const losing =
        <A, R>(name: string, call: (input: A) => Promise<R>) =>
        async (input: A): Promise<R> => {
          const isFirst = !lost.has(name);
          lost.add(name);
          const killed = (): Error => ApplicationFailure.create({ message: `killed ${at} ${name}`, nextRetryDelay: 10 });
          if (isFirst && at === 'before') throw killed();
          const answered = await call(input);
          if (isFirst) throw killed();
          return answered;
        };
      const { boots, queue } = real;
      await work({
        ...real,
        boots: { look: losing('look', boots.look), orders: losing('orders', boots.orders) },
        queue: { enqueue: losing('enqueue', queue.enqueue) },
      });
      await reconcile();
      assert.deepEqual([...lost].toSorted(), ['enqueue', 'look', 'orders']);
      assert.deepEqual(await perform(), ['boot.cleanUp']);
      assert.equal(await answer(id), 'hold');
    });

  it('what is judged is the state that was looked at: a machine that a run claimed meanwhile is not told', async () => {
    await provisioned('m07');
    await used.db.transaction((tx) => quarantineMachine(tx, { nodeId: 'm07', reason: 'a look', now: Date.now() }));
    const real = ports();
    await work({
      ...real,
      boots: {
        look: real.boots.look,
        orders: async (judged) => {
          await planRun(used.db, runOf('m07', 'retire'));
          return real.boots.orders(judged);
        },
      },
    });
    assert.equal((await reconcile()).sent, 0);
    assert.deepEqual(await perform(), []);
  });

  it('an activity that somebody completes by hand sends nothing that the database does not demand', async () => {
    await provisioned('m08');
    const handle = await temporal.client.workflow.start('reconcileBoots', {
      workflowId: 'reconcile-boots-by-hand',
      taskQueue: taskQueues.control,
    });
    const lie = { tell: [{ machineId: 'm08', generation: 4 }, { machineId: 7 }, null], underWay: 'many' };
    for (let completed = false; !completed; ) {
      const { raw } = await handle.describe();
      const activityId = raw.pendingActivities?.[0]?.activityId;
      if (activityId === undefined || activityId === null) continue;
      await temporal.client.activity.complete({ workflowId: handle.workflowId, activityId }, lie);
      completed = true;
    }
    await work();
    assert.deepEqual(await handle.result(), { sent: 0, underWay: 0, away: 0, failing: 0 });
    assert.deepEqual(await perform(), []);
    assert.equal(await answer('m08'), 'local');
  });
});
