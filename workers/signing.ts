/**
 * The signing worker: everything that signs (queue bc-signing). It holds the command roots, its own worker key (in memory
 * only) and the audit key; it polls no workflow. A change of the key bundle reaches it without a restart, and the heartbeat
 * says at once which bundle it runs, because a gate waits for that (H-02).
 */
import { Counter, Gauge, type Registry } from 'prom-client';
import { createAccess } from '../activities/adapters/access.ts';
import { createBatches, createBatchRelease } from '../activities/adapters/batches.ts';
import { createBoots } from '../activities/adapters/boots.ts';
import { createBatchNodePages, createCommandLog, createCommandQueue, createNodePages } from '../activities/adapters/commands.ts';
import { createKeyRotationPorts } from '../activities/adapters/key-rotation.ts';
import { createAnswers, createMetalKeys, createMetalRuns, createSites } from '../activities/adapters/metal.ts';
import { createApproverSetEvidence, createBatchEvidence } from '../activities/adapters/quorum-evidence.ts';
import {
  createCommandRoots,
  createEvidence,
  createResigner,
  createRotationFacts,
  createRotationReads,
} from '../activities/adapters/rotation.ts';
import { createApproverSetSigningActivities } from '../activities/approver-set-control.ts';
import { createAuditSigningActivities } from '../activities/audit-signing.ts';
import { createBatchSigningActivities } from '../activities/batches-signing.ts';
import { createBootSigningActivities } from '../activities/boots.ts';
import { createCommandSigningActivities } from '../activities/commands-signing.ts';
import { createKeyRotationSigningActivities } from '../activities/key-rotation-signing.ts';
import { createMetalSigningActivities } from '../activities/metal-signing.ts';
import { createRotationSigningActivities } from '../activities/rotation-signing.ts';
import { createSpecSigningActivities } from '../activities/spec-signing.ts';
import { createSshSigningActivities } from '../activities/ssh-signing.ts';
import { ControlError } from '../domain/errors.ts';
import type { Database } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import { bundleDigest } from '../pki/bundle/index.ts';
import type { ExternalSigners } from '../pki/signers/index.ts';
import { createBundleFileStore } from '../runtime/bundle-file-store.ts';
import { type ProcessContext, type RunningProcess, runProcess } from '../runtime/lifecycle.ts';
import { openExternalSigners } from '../runtime/signers/external-signers.ts';
import type { CheckpointMade } from '../services/audit-checkpoints.ts';
import { auditModule } from '../services/audit-module.ts';
import { createDatabaseBundleStore } from '../services/bundle-store.ts';
import { assertFresh } from '../services/freshness.ts';
import { createPoker, type Poker } from '../services/poke.ts';
import { createWorkerKeyring, type WorkerKeyProvider } from '../services/worker-keys.ts';
import { taskQueues } from '../temporal.config.ts';
import { type Activities, activitiesOf } from './boundaries.ts';
import { type BundleHolder, holdBundle } from './bundle-holder.ts';
import { readSigningConfig, type SigningConfig } from './config.ts';
import { newProcessId, startHeartbeat } from './heartbeat.ts';
import { startWorkerProcess, type WorkerParts } from './process.ts';
import { createTlsFolder } from './tls-folder.ts';
import { signingWorkerSettings } from './worker-settings.ts';

const now = Date.now;

await runProcess({ name: 'worker-signing', start });

async function start(context: ProcessContext): Promise<RunningProcess> {
  const config = readSigningConfig(context.env);
  return startWorkerProcess({ name: 'worker-signing', config, context, build: (parts) => build(config, parts) });
}

async function build(config: SigningConfig, parts: WorkerParts): Promise<void> {
  const { context, db, health, closing } = parts;
  const { log, env } = context;
  const { times } = config;
  const signers = openExternalSigners(config.signers, env);
  closing.push(() => signers.close());
  const running = await openBundleOf(config, { ...parts, signers });
  closing.push(() => running.close());
  const processId = newProcessId('worker-signing');
  const identity = (): { digest: string; generation: number } => ({
    digest: bundleDigest(running.current()),
    generation: running.current().generation,
  });
  const worker = counted(createWorkerKeyring({ db, processId, bundle: running.current, times, now }), health.registry);
  const heartbeat = await startHeartbeat({ db, log, kind: 'worker-signing', processId, bundle: identity });
  closing.push(() => heartbeat.stop());
  running.onChange(() => void heartbeat.beat());
  // Not fresh is no reason to stay down: the process says so, signs nothing, and works again when it is repaired (C22).
  health.check('bundle', () => assertFresh(db, identity()));
  const poker = createPoker({ db, log });
  closing.push(() => poker.close());
  const activities = activitiesOf(taskQueues.signing, signingActivities(config, { db, running, worker, poke: poker.poke }));
  await parts.runWorker({ ...signingWorkerSettings, taskQueue: taskQueues.signing, activities });
}

interface Signing {
  readonly db: Database;
  readonly running: BundleHolder;
  readonly worker: WorkerKeyProvider;
  readonly poke: Poker['poke'];
}

/** Every row of the queue's boundary, over the database and the running bundle. */
function signingActivities(
  { times, workload, tlsFolder, secret, gateway, ticketIssuer }: SigningConfig,
  { db, running, worker, poke }: Signing,
): Activities[] {
  const resign = createResigner({ db, worker, bundle: running.current });
  const trustDomain = (): string => running.current().trustDomain;
  const clock = (): Promise<number> => databaseNow(db);
  const queue = createCommandQueue({ db, now, worker, trustDomain, poke: poke });
  const access = createAccess({ db, worker, bundle: running.current, ticketIssuer });
  return [
    createRotationSigningActivities({
      now,
      times,
      resign,
      facts: createRotationFacts({ db }),
      reads: createRotationReads({ db }),
      roots: createCommandRoots({ db, running }),
      evidence: createEvidence({ db, running }),
    }),
    createKeyRotationSigningActivities(
      createKeyRotationPorts({
        db,
        now,
        running,
        clock,
        times,
        workload,
        folder: createTlsFolder(tlsFolder),
        specs: access.specs,
      }),
    ),
    createBatchSigningActivities({
      now,
      batches: createBatches({ db, trustDomain }),
      release: createBatchRelease({ db, trustDomain, worker, poke: poke }),
      evidence: createBatchEvidence({ db, running }),
    }),
    createApproverSetSigningActivities({ evidence: createApproverSetEvidence({ db, running }) }),
    createAuditSigningActivities({ audit: { checkpoint: () => sealAudit(db, running) } }),
    createSshSigningActivities({ ssh: access }),
    createSpecSigningActivities({ credentials: access }),
    ...metalActivities({ db, running, queue, secret, gateway }),
    createCommandSigningActivities({
      now,
      clock,
      resign,
      access,
      queue,
      nodes: createNodePages({ db }),
      batchNodes: createBatchNodePages({ db }),
    }),
  ];
}

/** Of runs on machines, and of what boot servers are told beside them. */
function metalActivities({
  db,
  running,
  queue,
  secret,
  gateway,
}: Pick<Signing, 'db' | 'running'> &
  Pick<SigningConfig, 'secret' | 'gateway'> & { readonly queue: ReturnType<typeof createCommandQueue> }): Activities[] {
  const trustDomain = (): string => running.current().trustDomain;
  return [
    createMetalSigningActivities({
      now,
      runs: createMetalRuns({ db, trustDomain }),
      keys: createMetalKeys({ db, bundle: running.current, secret, gateway }),
      sites: createSites({ db }),
      answers: createAnswers({ db }),
      commands: createCommandLog({ db, now }),
      queue,
    }),
    createBootSigningActivities({ now, boots: createBoots({ db }), queue }),
  ];
}

/** A bundle from before there was an audit key seals nothing (KEY-036). */
async function sealAudit(db: Database, running: BundleHolder): Promise<CheckpointMade[]> {
  const { auditSigning, trustDomain } = running.current();
  return auditModule({ signer: auditSigning }).checkpoint({ db, trustDomain, now: await databaseNow(db) });
}

async function openBundleOf(
  config: SigningConfig,
  { db, signers, context: { log } }: WorkerParts & { signers: ExternalSigners },
): Promise<BundleHolder> {
  const store = config.bundlePath === null ? createDatabaseBundleStore({ db, now, log }) : createBundleFileStore(config.bundlePath);
  const running = await holdBundle({ store, secret: config.secret, signers, log });
  const { trustDomain } = running.current();
  if (config.trustDomain !== undefined && config.trustDomain !== trustDomain) {
    running.close();
    throw new ControlError('INVALID_CONFIG', `the key bundle belongs to ${trustDomain}, this deployment is ${config.trustDomain}`, {
      details: { reason: 'trust-domain' },
    });
  }
  return running;
}

/** Shows what this process signs under, and until when. */
function counted(keys: WorkerKeyProvider, registry: Registry): WorkerKeyProvider {
  const uses = new Counter({
    name: 'bc_worker_key_uses_total',
    help: 'Times a worker key was asked for to sign',
    labelNames: ['root'],
    registers: [registry],
  });
  const end = new Gauge({ name: 'bc_worker_key_not_after_seconds', help: 'End of the worker key in use', registers: [registry] });
  const refused = new Counter({ name: 'bc_worker_key_refused_total', help: 'Times this process must not sign', registers: [registry] });
  return {
    async current() {
      try {
        const key = await keys.current();
        uses.inc({ root: key.rootId.slice(0, 12) });
        end.set(key.notAfter / 1_000);
        return key;
      } catch (error) {
        refused.inc();
        throw error;
      }
    },
  };
}
