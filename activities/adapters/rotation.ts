/** The rotation's ports over PostgreSQL (services/) and the key bundle (pki/). */
import { ControlError } from '../../domain/errors.ts';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { connectedNodeVersions, fleetFacts } from '../../drizzle/queries/sessions.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import type { CanonicalValue } from '../../pki/audit/canonical-json.ts';
import { createStageEvidence, type EvidenceSigner, type EvidenceStage } from '../../pki/audit/evidence.ts';
import * as bundles from '../../pki/bundle/index.ts';
import { trustContentDigest, trustContentOf } from '../../pki/trust/index.ts';
import type { PublishedQuorumPort } from '../../services/override-approval.ts';
import { listProcesses } from '../../services/processes.ts';
import { readPublishedQuorum } from '../../services/published-quorum.ts';
import { countSignedUnder, resignCommands } from '../../services/resign.ts';
import { readEvidence, readOverrides, recordEvidence, recordOverride } from '../../services/rotations.ts';
import { lastWorkerNotAfter, type WorkerKeyProvider } from '../../services/worker-keys.ts';
import type {
  Clock,
  CommandRootsPort,
  EvidencePort,
  OverrideWriterPort,
  ResignPort,
  RootsView,
  RotationFactsPort,
  RotationReadsPort,
} from '../rotation-ports.ts';
import { createBundleSteps, type RunningBundle } from './bundle-steps.ts';

/** The set that daemons are given, and the trust domain this process was told. */
export const createPublishedQuorum = ({ db, trustDomain }: { db: Database; trustDomain: string | undefined }): PublishedQuorumPort => ({
  published: () => readPublishedQuorum(db),
  trustDomain: () => {
    if (trustDomain !== undefined) return trustDomain;
    throw new ControlError(
      'MISSING_ENV',
      'BETTER_COMPUTE_TRUST_DOMAIN is not set for this process: signatures of approvers cannot be judged',
    );
  },
});

export interface DatabasePorts extends Clock {
  readonly db: Database;
}

export const createRotationFacts = ({ db }: Pick<DatabasePorts, 'db'>): RotationFactsPort => ({
  publication: async () => {
    const published = await publishedTrust(db);
    return published === null ? null : { version: published.version, digest: published.digest };
  },
  now: () => databaseNow(db),
  processes: () => listProcesses(db),
  fleet: ({ version, excluded }) => fleetFacts(db, { version, excluded }),
  connectedVersions: () => connectedNodeVersions(db, {}),
  lastWorkerNotAfter: (rootId) => lastWorkerNotAfter(db, rootId),
});

export const createRotationReads = ({ db }: Pick<DatabasePorts, 'db'>): RotationReadsPort => ({
  overrides: (rotationId) => readOverrides(db, rotationId),
});

export const createOverrideWriter = ({ db, now }: DatabasePorts): OverrideWriterPort => ({
  recordOverride: ({ rotationId, override, details }) =>
    recordOverride(db, { rotationId, override, details: details as Readonly<Record<string, CanonicalValue>>, now: now() }),
  nodeExists: async (nodeId) => (await readNodeFacts(db, [nodeId])).has(nodeId),
});

/** The digest is of these roots beside the approvers that are published: a rotation of roots changes no approver (A-PKI-19). */
const viewOf = async (db: Database, bundle: bundles.PkiBundle): Promise<RootsView> => ({
  roots: bundle.commandRoots,
  trustDomain: bundle.trustDomain,
  generation: bundle.generation,
  bundleDigest: bundles.bundleDigest(bundle),
  trustDigest: trustContentDigest({ ...trustContentOf(bundle), quorum: await readPublishedQuorum(db) }),
});

/** Steps carry the database's time: the drop is judged from the time of the switch, whichever hosts take the two steps. */
export function createCommandRoots({ db, running }: Pick<DatabasePorts, 'db'> & { running: RunningBundle }): CommandRootsPort {
  const steps = createBundleSteps({ db, running, clock: () => databaseNow(db) });
  const step = async (...[take]: Parameters<typeof steps.take>): Promise<RootsView> => viewOf(db, await steps.take(take));
  return {
    read: async () => viewOf(db, await steps.read()),
    assertFresh: () => steps.assertFresh(),
    add: ({ rotationId, refuse }) =>
      step(async (bundle, now) => {
        await refuse();
        return bundles.addCommandRoot(bundle, { rotationId, now });
      }),
    switch: ({ rotationId }) => step((bundle, now) => bundles.switchCommandRoot(bundle, { rotationId, now })),
    drop: (input) => step((bundle, now) => bundles.dropCommandRoot(bundle, { ...input, now })),
    abort: (input) => step((bundle, now) => bundles.abortCommandRotation(bundle, { ...input, now })),
  };
}

interface ResignerOptions extends Pick<DatabasePorts, 'db'> {
  readonly worker: WorkerKeyProvider;
  readonly bundle: () => bundles.PkiBundle;
}

export const createResigner = ({ db, worker, bundle }: ResignerOptions): ResignPort => ({
  signAgain: async (input) => {
    try {
      const roots = [...bundle().commandRootsById.values()].map((root) => root.certificate.der);
      const { commands, specs } = await resignCommands({ db, worker, roots, now: await databaseNow(db), ...input });
      return { commands, specs };
    } catch (error) {
      if (!(error instanceof ControlError) || error.details['reason'] !== 'signs-under-root') throw error;
      // This process has not taken the switched bundle yet: soon, not never.
      throw new ControlError('NOT_YET', error.message, { details: error.details, cause: error });
    }
  },
  stillSignedUnder: (rootId) => countSignedUnder(db, rootId),
});

/** @throws INVALID_CONFIG for a bundle from before there was an audit key */
export function auditSignerOf({ auditSigning }: bundles.PkiBundle): EvidenceSigner {
  if (auditSigning !== undefined) return auditSigning.signer();
  throw new ControlError('INVALID_CONFIG', 'the key bundle has no audit-signing key: evidence cannot be signed', {
    details: { reason: 'no-audit-key' },
  });
}

const stageOf = (stage: string): EvidenceStage => stage as EvidenceStage;

export function createEvidence({ db, running }: Pick<DatabasePorts, 'db'> & { running: RunningBundle }): EvidencePort {
  return {
    read: (rotationId) => readEvidence(db, rotationId),
    write: async (facts) => {
      const signer = auditSignerOf(await running.refresh());
      const earlier = await readEvidence(db, facts.rotationId);
      const signed = await createStageEvidence({ signer, facts, previous: earlier.at(-1) ?? null });
      await recordOnce(db, { ...signed, rotationId: facts.rotationId, stage: stageOf(facts.stage), at: facts.at, actor: facts.actor });
    },
  };
}

/** Another worker may have written the same stage in this moment; its document stands. */
export async function recordOnce(db: Database, evidence: Parameters<typeof recordEvidence>[1]): Promise<void> {
  try {
    await recordEvidence(db, evidence);
  } catch (error) {
    if (!(error instanceof ControlError) || error.details['reason'] !== 'evidence-differs') throw error;
  }
}
