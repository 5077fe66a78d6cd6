/**
 * The control worker: every workflow, and the activities that only read or change the database (queue bc-control). It holds no
 * secret: it cannot sign, seal or open anything. It also carries the relay that brings the ends of commands to their
 * activities, and ensures search attributes and schedules.
 */
import { Counter, Gauge, type Registry } from 'prom-client';
import { createApproverSets } from '../activities/adapters/approver-sets.ts';
import { createBatchProducers } from '../activities/adapters/batch-producers.ts';
import { createBatches, createBatchWatch } from '../activities/adapters/batches.ts';
import { createBoots } from '../activities/adapters/boots.ts';
import { createCommandLog, createNodePages } from '../activities/adapters/commands.ts';
import { createEnrolments } from '../activities/adapters/enrolments.ts';
import { createIdentities } from '../activities/adapters/identities.ts';
import { createAnswers, createBatchStarter, createMetalRuns, createSites } from '../activities/adapters/metal.ts';
import { createOverrideWriter, createPublishedQuorum, createRotationFacts, createRotationReads } from '../activities/adapters/rotation.ts';
import { createApproverSetActivities } from '../activities/approver-set-control.ts';
import { createBatchProducerActivities } from '../activities/batch-producers.ts';
import { createBatchControlActivities } from '../activities/batches-control.ts';
import { createBootControlActivities } from '../activities/boots.ts';
import { createCommandControlActivities } from '../activities/commands-control.ts';
import { createEnrolmentControlActivities } from '../activities/enrolments-control.ts';
import { createIdentityActivities } from '../activities/identities.ts';
import { createKeyRotationControlActivities } from '../activities/key-rotation-control.ts';
import { createMetalControlActivities } from '../activities/metal-control.ts';
import { createRotationControlActivities } from '../activities/rotation-control.ts';
import { completionChannel, runChannel } from '../drizzle/queries/channels.ts';
import { publishedTrust } from '../drizzle/queries/trust.ts';
import { type ProcessContext, type RunningProcess, runProcess } from '../runtime/lifecycle.ts';
import { createPoker, type Poker } from '../services/poke.ts';
import { taskQueues, workflowIds } from '../temporal.config.ts';
import { type Activities, activitiesOf } from './boundaries.ts';
import { loadWorkflowBundle } from './bundle.ts';
import { type ControlConfig, readControlConfig } from './config.ts';
import { createHearing, type Hearing } from './hearing.ts';
import { newProcessId, startHeartbeat } from './heartbeat.ts';
import { createLocalEnds, type LocalEnds } from './local-ends.ts';
import { createOutbox } from './outbox.ts';
import { startWorkerProcess, type WorkerParts } from './process.ts';
import { createRelay, type RelayCount } from './relay.ts';
import { createRunWords } from './run-words.ts';
import { ensureSchedules } from './schedules.ts';
import { ensureSearchAttributes } from './search-attributes.ts';
import { controlWorkerSettings, runWaitsAtOnce } from './worker-settings.ts';

const now = Date.now;

await runProcess({ name: 'worker-control', start });

async function start(context: ProcessContext): Promise<RunningProcess> {
  const config = readControlConfig(context.env);
  return startWorkerProcess({ name: 'worker-control', config, context, build: (parts) => build(config, parts) });
}

async function build(config: ControlConfig, parts: WorkerParts): Promise<void> {
  const { context, db, connection, client, namespace, closing } = parts;
  const { log } = context;
  await ensureSearchAttributes(connection, namespace);
  await ensureSchedules(client);
  const poker = createPoker({ db, log });
  closing.push(() => poker.close());
  const ends = createLocalEnds();
  const hearing = createHearing({ db, log, name: newProcessId('worker-control') });
  const words = createRunWords({ isHeard: hearing.isHeard, most: runWaitsAtOnce });
  hearing.on(runChannel, { onWord: words.say, onGap: words.sayAll });
  const activities = activitiesOf(
    taskQueues.control,
    controlActivities({ db, client, poke: poker.poke, ends, words, trustDomain: config.trustDomain }),
  );
  startRelay(parts, hearing, ends.wake);
  hearing.start();
  closing.push(() => hearing.close());
  const heartbeat = await startHeartbeat({
    db,
    log,
    kind: 'worker-control',
    processId: newProcessId('worker-control'),
    bundle: () => null,
    trustVersionSeen: async () => (await publishedTrust(db))?.version ?? null,
  });
  closing.push(() => heartbeat.stop());
  await parts.runWorker({
    ...controlWorkerSettings,
    taskQueue: taskQueues.control,
    workflowBundle: await loadWorkflowBundle(),
    activities,
  });
  // Before the worker stops, which waits for its activities.
  closing.push(() => words.close());
}

interface Controlling extends Pick<WorkerParts, 'db' | 'client'> {
  readonly poke: Poker['poke'];
  readonly ends: LocalEnds;
  readonly words: ReturnType<typeof createRunWords>;
  readonly trustDomain: string | undefined;
}

/** Every row of the queue's boundary, over the database and the client. */
function controlActivities({ db, client, poke, ends, words, trustDomain }: Controlling): Activities[] {
  const gates = { now, facts: createRotationFacts({ db }), reads: createRotationReads({ db }) };
  const overrides = createOverrideWriter({ db, now });
  const quorum = createPublishedQuorum({ db, trustDomain });
  return [
    createRotationControlActivities({ ...gates, overrides, quorum }),
    createKeyRotationControlActivities({ overrides, quorum }),
    createApproverSetActivities({ ...gates, overrides, quorum, sets: createApproverSets({ db, trustDomain: quorum.trustDomain }) }),
    createBatchControlActivities({
      now,
      batches: createBatches({ db, trustDomain: quorum.trustDomain }),
      workflows: createBatchWatch(client, workflowIds.approveBatch),
    }),
    createBatchProducerActivities({
      nodes: createNodePages({ db }),
      producers: createBatchProducers({ db, trustDomain: quorum.trustDomain }),
    }),
    createCommandControlActivities({ now, commands: createCommandLog({ db, now, poke }), nextEnd: ends.nextEnd }),
    createIdentityActivities({ now, identities: createIdentities({ db, now }) }),
    createMetalControlActivities({
      now,
      runs: createMetalRuns({ db, trustDomain: quorum.trustDomain }),
      sites: createSites({ db }),
      answers: createAnswers({ db }),
      commands: createCommandLog({ db, now, poke }),
      watch: createBatchStarter(client),
      words,
    }),
    createEnrolmentControlActivities({ enrolments: createEnrolments({ db }) }),
    createBootControlActivities({ boots: createBoots({ db }), workflows: createBatchWatch(client, (workflowId) => workflowId) }),
  ];
}

/** Until the worker has ended: what its last activities wait for still reaches them. */
function startRelay({ context: { log }, db, client, health, closing }: WorkerParts, hearing: Hearing, wake: LocalEnds['wake']): void {
  const relay = createRelay({
    outbox: createOutbox({ db, now }),
    completions: client.activity,
    isHeard: hearing.isHeard,
    wake,
    log,
    onCount: relayMetrics(health.registry),
  }).start();
  closing.push(() => relay.stop());
  hearing.on(completionChannel, { onWord: relay.look, onGap: relay.look });
}

function relayMetrics(registry: Registry): (what: RelayCount, by: number) => void {
  const counter = new Counter({
    name: 'bc_relay_total',
    help: 'What the relay did with ends of commands',
    labelNames: ['what'],
    registers: [registry],
  });
  const last = new Gauge({ name: 'bc_relay_last_success_seconds', help: 'When a completion last reached Temporal', registers: [registry] });
  return (what, by) => {
    counter.inc({ what }, by);
    if (what === 'completed') last.set(now() / 1_000);
  };
}
