/**
 * The running deployment as the pki commands see it: what is published, who is connected, what a decision leaves behind. One
 * port over the database, so that a command without a database never loads a driver, and a test brings facts of its own.
 */
import { ControlError } from '../../../domain/errors.ts';
import type { FleetFacts, ProcessFact } from '../../../domain/rotation/gates.ts';
import type { QuorumFields } from '../../../pki/trust/index.ts';
import type { Ports } from '../../ports.ts';

export interface Published {
  readonly version: number;
  readonly digest: string;
  /** An encoded TrustBundle. */
  readonly body: Uint8Array;
}

export interface NodeTrust {
  readonly nodeId: string;
  /** null: it does not report. */
  readonly trustVersion: number | null;
  readonly lastSeenAt: number;
  readonly approverSetEpoch: number | null;
  /** Lower-case hex; null: it does not report. */
  readonly approverSetSha256: string | null;
}

export interface ForcedStep {
  readonly rotationId: string;
  readonly stage: string;
  readonly actor: string;
  readonly reason: string;
  /** Facts at the moment of the decision: who is left behind (H-08). */
  readonly details: Readonly<Record<string, string | number | readonly string[]>>;
}

export interface Deployment {
  /** The clock that presence, heartbeats and worker certificates are judged by: the database's, not this host's. */
  now(): Promise<number>;
  published(): Promise<Published | null>;
  /** The highest version at which this content was published; null if never. */
  earlierVersionOf(digest: string): Promise<number | null>;
  excludedNodes(rotationId: string): Promise<readonly string[]>;
  processes(): Promise<readonly ProcessFact[]>;
  fleet(version: number, excluded: readonly string[]): Promise<FleetFacts>;
  /** Each connected node once, by its newest session. */
  connected(): Promise<readonly NodeTrust[]>;
  /** The database has the columns in which gateways record approver sets (LAG-015). */
  recordsSets(): Promise<boolean>;
  /** The last approver set that was introduced properly; null before the first. */
  introducedSet(): Promise<QuorumFields | null>;
  lastWorkerNotAfter(rootId: string): Promise<number | null>;
  /** Unfinished commands and stored specs that are signed under the root. */
  signedUnder(rootId: string): Promise<number>;
  /** Writes a forced step to the audit trail. */
  recordForce(step: ForcedStep): Promise<void>;
  close(): Promise<void>;
}

export interface PkiPorts extends Ports {
  /** null when neither the environment nor a running stack names a database. */
  deployment(): Promise<Deployment | null>;
}

export const createPkiPorts = (ports: Ports): PkiPorts => ({
  ...ports,
  deployment: async () => {
    const url = ports.settings.databaseUrl();
    return url === null ? null : (await import('./database-deployment.ts')).createDatabaseDeployment(url);
  },
});

/** @throws MISSING_ENV when there is none (ROT-027) */
export async function getDeployment(ports: PkiPorts, purpose: string, alternative: string): Promise<Deployment> {
  const deployment = await ports.deployment();
  if (deployment !== null) return deployment;
  throw new ControlError(
    'MISSING_ENV',
    `${purpose} asks the deployment's database: BETTER_COMPUTE_DATABASE_URL is not set and no stack runs from this state folder`,
    {
      details: { reason: 'no-database', hint: `set BETTER_COMPUTE_DATABASE_URL${alternative}` },
    },
  );
}
