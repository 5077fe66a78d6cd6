/** What runs on machines need from the outside, over PostgreSQL (services/metal), the queue and the key bundle. */
import type { WorkflowClient } from '@temporalio/client';
import { ControlError } from '../../domain/errors.ts';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import type { PkiBundle } from '../../pki/bundle/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { findCommand } from '../../services/command-ends.ts';
import * as metal from '../../services/metal/index.ts';
import * as secrets from '../../services/metal/run-secrets.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { plannedOwnSteps } from '../metal-own-steps.ts';
import type { AnswersPort, MetalControlPorts, MetalKeysPort, MetalRunsPort, PlannedRun, SitesPort } from '../metal-ports.ts';
import { decodeAny } from './any-value.ts';

export interface MetalOptions {
  readonly db: Database;
  readonly trustDomain: () => string;
}

export function createMetalRuns({ db, trustDomain }: MetalOptions): MetalRunsPort {
  const now = (): Promise<number> => databaseNow(db);
  return {
    plan: async (input) => plannedRun(await metal.planRun(db, { ...input, now: await now() })),
    read: (runId) => metal.readRunFacts(db, runId, null),
    standing: (runId) => metal.standingOfRun(db, runId),
    createBatch: async (runId) => {
      const batch = await metal.createRunBatch(db, runId, { now: await now(), trustDomain: trustDomain() });
      return batch === null ? null : { batchId: batch.batchId, held: batch.held, notAfter: batch.notAfterMs };
    },
    record: (rows) => metal.recordSteps(db, rows),
    closeBoots: async (runId) => {
      await metal.closeBoots(db, runId, await now());
    },
    recordInventory: async (input) => metal.recordInventory(db, { ...input, now: await now() }),
    recordDisks: async (input) => metal.recordDisks(db, { ...input, now: await now() }),
    recordPower: (input) => metal.recordPower(db, input),
    endIdentity: async (input) => {
      const { generation, serials } = await metal.endRunIdentity(db, { ...input, now: await now() });
      return { summary: `${serials.length} certificate(s) revoked; the next identity has generation ${generation}` };
    },
    finish: async ({ runId, end, failure, detail, actor }) => {
      const reason = [failure, detail].filter((text) => text !== '').join(': ');
      const finished = await metal.finishRun(db, { runId, end, reason, actor, now: await now() });
      await secrets.forgetRunSecrets(db, runId, await now());
      const { end: ended, remains, machineState } = finished;
      return { end: ended, remains, machineState };
    },
    recordMessage: async (message) => metal.recordRunMessage(db, { ...message, now: await now() }),
    places: (machineIds) => metal.placesOf(db, machineIds),
  };
}

function plannedRun({
  runId,
  machineId,
  kind,
  siteId,
  rack,
  bmc,
  steps,
  actions,
  profile,
}: Awaited<ReturnType<typeof metal.planRun>>): PlannedRun {
  const ownSteps = plannedOwnSteps(kind, profile);
  return {
    runId,
    machineId,
    kind,
    siteId,
    rack,
    bmc: bmc.address,
    steps: steps.map(({ name, deadlineMs }) => ({ name, deadlineMs })),
    actions,
    ...(ownSteps.length === 0 ? {} : { ownSteps }),
    startBy: profile?.start.by ?? null,
    diagnosesGpus: profile?.diagnose.dcgm !== undefined,
    bootTimeMs: profile?.boot.bootTimeMs ?? 0,
    joinWithinMs: profile?.start.joinWithinMs ?? 0,
  };
}

const lastSeen = { name: 'metal-last-seen', text: 'select last_seen_at as "lastSeenAt" from node_presence where node_id = $1' };

export const createSites = ({ db }: Pick<MetalOptions, 'db'>): SitesPort => ({
  agents: async ({ siteId, tenantId }) => metal.agentsOfSite(db, siteId, { now: await databaseNow(db), tenantId }),
  lastSeen: async (nodeId) => (await db.query<{ lastSeenAt: number | null }>(lastSeen, [nodeId]))[0]?.lastSeenAt ?? null,
});

export const createAnswers = ({ db }: Pick<MetalOptions, 'db'>): AnswersPort => ({
  find: async (commandId) => {
    const found = await findCommand(db, commandId);
    if (found === undefined) return undefined;
    const { state, nodeId, kind, createdAt, reason, result } = found;
    const error = result?.errorMessage || result?.errorCode || reason || '';
    return { state, nodeId, kind, createdAt, errorCode: result?.errorCode ?? '', error, result: decodeAny(result?.payload ?? null) };
  },
});

/** Starts what watches a batch, from outside of any history; the reconciler does where this is lost. */
export const createBatchStarter =
  (client: { readonly workflow: Pick<WorkflowClient, 'start'> }): MetalControlPorts['watch'] =>
  async (batchId) => {
    try {
      await client.workflow.start('approveBatch', {
        workflowId: workflowIds.approveBatch(batchId),
        taskQueue: taskQueues.control,
        args: [{ batchId }],
        workflowIdConflictPolicy: 'USE_EXISTING',
      });
    } catch (error) {
      if (!(error instanceof Error && error.name === 'WorkflowExecutionAlreadyStartedError')) throw error;
    }
  };

export interface MetalKeysOptions extends Pick<MetalOptions, 'db'> {
  readonly bundle: () => PkiBundle;
  /** BETTER_COMPUTE_SECRET; undefined: this worker seals nothing. */
  readonly secret: string | undefined;
  readonly gateway: { readonly url: string | undefined; readonly name: string | undefined };
}

export function createMetalKeys({ db, bundle, secret, gateway }: MetalKeysOptions): MetalKeysPort {
  const sealing = async (): Promise<{ secret: string; now: number }> => ({ secret: needSecret(secret), now: await databaseNow(db) });
  return {
    openBootEntry: async (input) => secrets.openBoot(db, input, await sealing()),
    openProvisionedJoin: async (runId) => {
      const { joinEncryption, joinSigning, servingCa, trustDomain } = bundle();
      const pins = {
        gateway: needGateway(gateway.url),
        ...(gateway.name === undefined ? {} : { serverName: gateway.name }),
        servingCaPin: spkiPin(servingCa.certificate.spki),
        joinKey: joinSigning.spki,
        trustDomain,
      };
      return { joinRef: await secrets.openProvisionedJoin(db, runId, { joinEncryption: joinEncryption.spki, pins, ...(await sealing()) }) };
    },
    recordEvidence: async (input) => {
      const { rootCa, nodeCa, trustDomain } = bundle();
      const anchors = [rootCa.certificate.der, ...nodeCa.certificates.map(({ der }) => der)];
      return metal.recordEvidence(db, input, { anchors, trustDomain, now: await databaseNow(db) });
    },
    storeNextCredential: async (runId) => ({ nextRef: await secrets.storeNextCredential(db, runId, await sealing()) }),
    adoptCredential: async (runId) => secrets.adoptCredential(db, runId, await sealing()),
  };
}

function needSecret(secret: string | undefined): string {
  if (secret !== undefined) return secret;
  throw new ControlError('MISSING_ENV', 'BETTER_COMPUTE_SECRET is not set for the signing worker: it cannot keep the secrets of a run', {
    details: { reason: 'no-secret' },
  });
}

function needGateway(url: string | undefined): string {
  if (url !== undefined) return url;
  throw new ControlError(
    'MISSING_ENV',
    'BETTER_COMPUTE_GATEWAY_URL is not set for the signing worker: a deployed system has to be told where to join',
    { details: { reason: 'no-gateway-url' } },
  );
}
