/** The rotation's ports over PostgreSQL (services/) and the key bundle (pki/). */
import { ControlError } from '../../domain/errors.ts';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { connectedNodeVersions, fleetFacts } from '../../drizzle/queries/sessions.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import type { CanonicalValue } from '../../pki/audit/canonical-json.ts';
import { createStageEvidence, type EvidenceStage } from '../../pki/audit/evidence.ts';
import * as bundles from '../../pki/bundle/index.ts';
import { trustContentDigest, trustContentOf } from '../../pki/trust/index.ts';
import { assertFresh } from '../../services/freshness.ts';
import { listProcesses } from '../../services/processes.ts';
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

/** The bundle that this process runs, and the way to write a next one that it then runs at once. */
export interface RunningBundle {
  /** The newest stored bundle; what it finds, this process runs from then on. */
  refresh(): Promise<bundles.PkiBundle>;
  /** Compare-and-swap on the store; what was written, this process runs from then on. */
  update(change: bundles.BundleChange): Promise<bundles.PkiBundle>;
}

const viewOf = (bundle: bundles.PkiBundle): RootsView => ({
  roots: bundle.commandRoots,
  trustDomain: bundle.trustDomain,
  generation: bundle.generation,
  bundleDigest: bundles.bundleDigest(bundle),
  trustDigest: trustContentDigest(trustContentOf(bundle)),
});

type Take = (bundle: bundles.PkiBundle, at: number) => bundles.BundleStep | Promise<bundles.BundleStep>;

/** Steps carry the database's time: the drop is judged from the time of the switch, whichever hosts take the two steps. */
export function createCommandRoots({ db, running }: Pick<DatabasePorts, 'db'> & { running: RunningBundle }): CommandRootsPort {
  const assertFreshBundle = (bundle: bundles.PkiBundle): Promise<void> =>
    assertFresh(db, { generation: bundle.generation, digest: bundles.bundleDigest(bundle) });
  /** H-07: an older bundle is never written on, however good its seal. */
  const step = async (take: Take): Promise<RootsView> => {
    const bundle = await running.update(async (before) => {
      await assertFreshBundle(before);
      const taken = await take(before, await databaseNow(db));
      return taken.changed ? taken.bundle : 'unchanged';
    });
    return viewOf(bundle);
  };
  return {
    read: async () => viewOf(await running.refresh()),
    assertFresh: async () => assertFreshBundle(await running.refresh()),
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

export const createResigner = ({ db, worker }: Pick<DatabasePorts, 'db'> & { worker: WorkerKeyProvider }): ResignPort => ({
  signAgain: async (input) => {
    try {
      return await resignCommands({ db, worker, ...input });
    } catch (error) {
      if (!(error instanceof ControlError) || error.details['reason'] !== 'signs-under-root') throw error;
      // This process has not taken the switched bundle yet: soon, not never.
      throw new ControlError('NOT_YET', error.message, { details: error.details, cause: error });
    }
  },
  stillSignedUnder: (rootId) => countSignedUnder(db, rootId),
});

const stageOf = (stage: string): EvidenceStage => stage as EvidenceStage;

export function createEvidence({ db, running }: Pick<DatabasePorts, 'db'> & { running: RunningBundle }): EvidencePort {
  return {
    read: (rotationId) => readEvidence(db, rotationId),
    write: async (facts) => {
      const { auditSigning } = await running.refresh();
      if (auditSigning === undefined) {
        throw new ControlError('INVALID_CONFIG', 'the key bundle has no audit-signing key: evidence cannot be signed', {
          details: { reason: 'no-audit-key' },
        });
      }
      const earlier = await readEvidence(db, facts.rotationId);
      const signed = await createStageEvidence({ signer: auditSigning.signer(), facts, previous: earlier.at(-1) ?? null });
      await recordOnce(db, { ...signed, rotationId: facts.rotationId, stage: stageOf(facts.stage), at: facts.at, actor: facts.actor });
    },
  };
}

/** Another worker may have written the same stage in this moment; its document stands. */
async function recordOnce(db: Database, evidence: Parameters<typeof recordEvidence>[1]): Promise<void> {
  try {
    await recordEvidence(db, evidence);
  } catch (error) {
    if (!(error instanceof ControlError) || error.details['reason'] !== 'evidence-differs') throw error;
  }
}
