/** What the rotation's activities need from the outside: the key bundle's roots, facts of the fleet, records. */
import type { FleetFacts, ProcessFact, RotationTimes } from '../domain/rotation/gates.ts';
import type { CommandRoots } from '../domain/rotation/stages.ts';
import type { SignedEvidence, StageFacts } from '../pki/audit/evidence.ts';
import type { PublishedQuorumPort } from '../services/override-approval.ts';

export interface RootsView {
  readonly roots: CommandRoots;
  readonly trustDomain: string;
  readonly generation: number;
  /** Of the whole public bundle: which bundle a process runs. */
  readonly bundleDigest: string;
  /** Of what this bundle publishes to the fleet. */
  readonly trustDigest: string;
}

/** The deployment's command roots behind their compare-and-swap; each step is one of domain/rotation/stages.ts. */
export interface CommandRootsPort {
  read(): Promise<RootsView>;
  /** Throws STALE_BUNDLE as long as the stored bundle or the database is older than the deployment (H-07). */
  assertFresh(): Promise<void>;
  /** `refuse` is asked in every attempt of the compare-and-swap; what it throws leaves the bundle as it is. */
  add(input: { rotationId: string; refuse: () => Promise<void> }): Promise<RootsView>;
  switch(input: { rotationId: string }): Promise<RootsView>;
  /** `root`: the one that was judged; refused when an abort has exchanged the roles since. */
  drop(input: { rotationId: string; root?: string; opensAt: number; forcedReason: string }): Promise<RootsView>;
  abort(input: { rotationId: string; actor: string; reason: string; recordedVersion: number }): Promise<RootsView>;
}

export interface Publication {
  readonly version: number;
  readonly digest: string;
}

export interface NodeVersion {
  readonly nodeId: string;
  readonly trustVersion: number | null;
}

/** One query each; the same facts that the CLI and doctor read. */
export interface RotationFactsPort {
  publication(): Promise<Publication | null>;
  /** The clock that heartbeats and presence are written by: of the database, not of this host. */
  now(): Promise<number>;
  processes(): Promise<readonly ProcessFact[]>;
  fleet(input: { version: number; excluded: readonly string[] }): Promise<FleetFacts>;
  /** Every connected node, ordered by id: the gate's input as evidence. */
  connectedVersions(): Promise<readonly NodeVersion[]>;
  lastWorkerNotAfter(rootId: string): Promise<number | null>;
}

export interface SignedAgain {
  readonly commands: number;
  readonly specs: number;
}

/** Open commands and stored specs, signed again by the current worker key (H-05). */
export interface ResignPort {
  signAgain(input: {
    underRoot?: string;
    expiringBefore?: number;
    underUnpublished?: boolean;
    onProgress?: (done: number) => void;
  }): Promise<SignedAgain>;
  stillSignedUnder(rootId: string): Promise<number>;
}

export interface OverrideRow {
  readonly kind: 'force' | 'exclude' | 'abort';
  readonly subject: string;
  readonly actor: string;
  readonly reason: string;
  readonly at: number;
}

export interface RotationReadsPort {
  overrides(rotationId: string): Promise<readonly OverrideRow[]>;
}

/** Writes an override and its audit event in one transaction; a repeated one returns the first. */
export interface OverrideWriterPort {
  recordOverride(input: {
    rotationId: string;
    override: Omit<OverrideRow, 'at'>;
    details: Readonly<Record<string, unknown>>;
  }): Promise<OverrideRow>;
  nodeExists(nodeId: string): Promise<boolean>;
}

/** Signs a document with the audit key and stores it with its audit event, once per stage. */
export interface EvidencePort {
  /** In the order of the stages. */
  read(rotationId: string): Promise<readonly SignedEvidence[]>;
  write(facts: StageFacts): Promise<void>;
}

export interface Clock {
  readonly now: () => number;
}

export interface RotationGatePorts extends Clock {
  readonly facts: RotationFactsPort;
  readonly reads: RotationReadsPort;
}

export interface RotationControlPorts extends RotationGatePorts {
  readonly overrides: OverrideWriterPort;
  readonly quorum: PublishedQuorumPort;
}

export interface RotationSigningPorts extends RotationGatePorts {
  readonly roots: CommandRootsPort;
  readonly resign: ResignPort;
  readonly evidence: EvidencePort;
  readonly times: RotationTimes;
}
