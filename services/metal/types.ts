/**
 * Machines: hardware that is known by its controller and by facts about it, and the runs that are made of it (bare metal).
 *
 * Invariants
 *   - A machine's state changes by one conditional UPDATE on (state, generation), along domain/metal/life-cycle.ts; nothing overwrites
 *     retired or deleted (H-20).
 *   - A machine is in one open run at most; the index of metal_runs says so, whoever asks and how often (M33).
 *   - What a run leaves is decided from its commands and the evidence that is stored, never from what a caller says.
 *   - Every change that a person asked for stands in the audit trail, written in the transaction of the change.
 *   - No secret is in any row: references, digests and public keys only.
 *
 * Threat model: controllers, boot servers and machines say what they like; what they report is normalised, bounded and kept as a claim
 * with its origin. A stolen boot token meets an entry that was used; a machine that answers for another one has another identity; a
 * ramdisk that lies about an erasure signs that lie with a key that is bound to one run of one machine, and can be held to it.
 *
 * What it does not do: talk to machines, wait, or decide when a step is tried again (workflows do).
 */
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import type { PlannedAction } from '../../domain/metal/plan.ts';
import type { Profile } from '../../domain/metal/profile.ts';
import type { Remains, RunEnd, RunKind } from '../../domain/metal/run-ends.ts';
import type { LeafInput } from '../batches/index.ts';

export type PowerState = 'on' | 'off' | 'changing' | 'unknown';
export type RunState = 'open' | RunEnd;
export type StepState = 'started' | 'done' | 'failed' | 'skipped';
export type EvidenceKind = 'erase' | 'deploy';
export type FactOrigin = 'inventory' | 'controller' | 'ramdisk';

/** As a person gives it. */
export interface NewMachine {
  readonly id: string;
  readonly siteId: string;
  readonly rack?: string;
  /** Host or host:port, as the site agent reaches it. */
  readonly bmcAddress: string;
  /** Which system behind the controller; empty: the one that can be reset. */
  readonly bmcSystemId?: string;
  /** Default: secret://bmc/<machine>. */
  readonly credentialRef?: string;
  /** SHA-256 of the controller's SPKI; absent: taken at the first inspection. */
  readonly bmcPinSha256?: string;
  readonly serial?: string;
  readonly uuid?: string;
  readonly macAddresses?: readonly string[];
  /** Default: the default tenant. */
  readonly tenantId?: string;
}

/** Where in a text something is wrong. Lines count from 1. */
export interface TextProblem {
  readonly line: number;
  readonly field: string;
  readonly message: string;
}

export interface MachineView {
  readonly id: string;
  readonly siteId: string;
  readonly rack: string;
  readonly tenantId: string;
  readonly state: MachineState;
  readonly stateSince: number;
  readonly stateReason: string;
  readonly generation: number;
  readonly manufacturer: string;
  readonly model: string;
  readonly memoryBytes: number;
  readonly processors: number;
  readonly profileName: string;
  readonly power: PowerState;
  readonly powerAt: number | null;
  readonly inspectedAt: number | null;
  readonly createdAt: number;
  readonly createdBy: string;
  readonly bmc: BmcView;
  /** The open run. */
  readonly run: RunSummary | null;
}

export interface BmcView {
  readonly address: string;
  readonly systemId: string;
  readonly credentialRef: string;
  readonly pinSha256: string | null;
  /** A BmcProfile in protobuf JSON; empty before the first inspection. */
  readonly profile: Readonly<Record<string, unknown>>;
}

export interface RunSummary {
  readonly id: string;
  readonly machineId: string;
  readonly kind: RunKind;
  readonly workflowId: string;
  readonly state: RunState;
  readonly remains: Remains | null;
  readonly endReason: string;
  readonly profileName: string;
  readonly batchId: string | null;
  readonly actor: string;
  readonly reason: string;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly endedBy: string;
}

export interface DiskView {
  readonly key: string;
  readonly name: string;
  readonly serial: string;
  readonly wwn: string;
  readonly model: string;
  readonly sizeBytes: number;
  readonly transport: string;
  readonly rotational: boolean | null;
  readonly origin: Exclude<FactOrigin, 'inventory'>;
  readonly seenAt: number;
}

export interface SiteOverview {
  readonly siteId: string;
  readonly agents: readonly SiteAgentView[];
  /** Only states that some machine is in. */
  readonly states: Readonly<Partial<Record<MachineState, number>>>;
  readonly racks: readonly { readonly rack: string; readonly machines: number }[];
  readonly openRuns: number;
}

export interface SiteAgentView {
  readonly nodeId: string;
  /** A live session. */
  readonly connected: boolean;
  readonly lastSeenAt: number | null;
}

/** A leaf as services/batches takes it: bound with its payload, or any payload without. */
export type ScopeLeafInput = LeafInput;

export interface PlannedStep {
  readonly name: string;
  readonly sends: readonly string[];
  readonly deadlineMs: number;
  /** It writes to the machine's disks. */
  readonly destroys: boolean;
}

export interface PlanRunInput {
  readonly machineId: string;
  readonly kind: RunKind;
  /** Required for a provision run; a retirement may have one, for what it boots. As parsed, or as its JSON. */
  readonly profile?: Profile | Readonly<Record<string, unknown>> | null;
  readonly workflowId: string;
  /** The same one is the same run. */
  readonly workflowRunId: string;
  readonly actor: string;
  readonly reason: string;
  readonly now: number;
}

export interface RunPlan {
  readonly runId: string;
  readonly machineId: string;
  readonly kind: RunKind;
  readonly workflowId: string;
  readonly siteId: string;
  readonly rack: string;
  readonly tenantId: string;
  readonly bmc: Omit<BmcView, 'profile'>;
  /** Active site agents of the machine's site, in the order of their ids: each has leaves. */
  readonly agents: readonly string[];
  readonly profile: Profile | null;
  readonly steps: readonly PlannedStep[];
  readonly actions: readonly PlannedAction[];
  /** Everything destructive that the run may send; empty when nothing is. Read again by `leavesOfRun`: not for a history. */
  readonly leaves: readonly ScopeLeafInput[];
  /** By step. */
  readonly deadlines: Readonly<Record<string, number>>;
  /** It had been made before. */
  readonly existing: boolean;
}

export interface BootEntry {
  readonly entryId: string;
  readonly runId: string;
  readonly attempt: number;
  /** 16 bytes, lower-case hex. */
  readonly bootNonce: string;
  /** secret://run/<run>/boot/<entry>: where the token belongs. */
  readonly tokenRef: string;
  readonly expiresAt: number;
  readonly usedAt: number | null;
  readonly closed: boolean;
}

/** What a run needs to know of its machine, read at once and for one decision. */
export interface RunFacts {
  readonly run: RunSummary;
  readonly isOpen: boolean;
  readonly machine: MachineView;
  readonly profile: Profile | null;
  readonly actions: readonly PlannedAction[];
  readonly macAddresses: readonly string[];
  /** As a ramdisk of this run reported them. */
  readonly disks: readonly DiskView[];
  readonly bootEntry: BootEntry | null;
  readonly node: NodeObservation;
}

export interface NodeObservation {
  readonly state: string;
  readonly role: string;
  readonly generation: number;
  /** Of the live session of this generation. */
  readonly connectedRole: string | null;
  /** Of the latest certificate of this generation. */
  readonly certificateRole: string | null;
  readonly certifiedAt: number | null;
}

export interface MachineObservation {
  readonly machineId: string;
  readonly state: MachineState;
  readonly stateReason: string;
  readonly power: PowerState;
  readonly powerAt: number | null;
  readonly identity: NodeObservation;
  readonly run: RunSummary | null;
  readonly bootEntry: BootEntry | null;
}

export interface FinishRunInput {
  readonly runId: string;
  readonly end: RunEnd;
  /** What the caller knows to be worse than the facts; it never makes them better. */
  readonly remains?: Remains | null;
  readonly reason: string;
  readonly actor: string;
  readonly now: number;
}

export interface FinishedRun {
  readonly runId: string;
  readonly end: RunEnd;
  readonly remains: Remains | null;
  readonly machineState: MachineState;
  /** It had ended before: this is how. */
  readonly existing: boolean;
}
