/**
 * What the runs on machines need from the outside: the run's row and what the database knows of its machine, the batch, the queue and the
 * ends of commands. A workflow says which step it takes; what is sent for it, and whether it was reached, is read here by the run's id
 * and never believed from an input.
 */
import type { CommandState } from '../domain/commands/states.ts';
import type { PlannedAction } from '../domain/metal/plan.ts';
import type { OwnStep } from '../domain/metal/profile-steps.ts';
import type { Remains, RunEnd, RunKind } from '../domain/metal/run-ends.ts';
import type { BootEntry, PowerState, RunFacts } from '../services/metal/types.ts';
import type { CommandControlPorts, CommandSigningPorts } from './command-ports.ts';
import type { Clock } from './rotation-ports.ts';

export interface PlanRunInput {
  readonly machineId: string;
  readonly kind: RunKind;
  /** The document of the profile; null for a kind that has none. */
  readonly profile: Readonly<Record<string, unknown>> | null;
  /** Its workflow: the same one again is the same run. */
  readonly workflowId: string;
  readonly workflowRunId: string;
  readonly actor: string;
  readonly reason: string;
}

/** All that a workflow needs to know of a step of the profile's own; what it says is read from the run's row. */
export type PlannedOwnStep = Pick<OwnStep, 'ordinal' | 'name' | 'after' | 'kind' | 'act' | 'on' | 'repeats'>;

/** All that a workflow keeps of its plan. */
export interface PlannedRun {
  readonly runId: string;
  readonly machineId: string;
  readonly kind: RunKind;
  readonly siteId: string;
  readonly rack: string;
  /** Host and port of the management controller. */
  readonly bmc: string;
  /** Name → how long it may take, in the order of domain/metal/steps.ts; those that the profile leaves out are not here. */
  readonly steps: readonly { readonly name: string; readonly deadlineMs: number }[];
  readonly actions: readonly PlannedAction[];
  /** The profile's own, in its order; absent where it has none, as in every run from before there were any. */
  readonly ownSteps?: readonly PlannedOwnStep[];
  /** Of the profile; null where there is none. */
  readonly startBy: 'kexec' | 'reboot' | null;
  readonly diagnosesGpus: boolean;
  /** From power-on to the ramdisk's join, and from the jump to the system's. */
  readonly bootTimeMs: number;
  readonly joinWithinMs: number;
}

export type { BootEntry, RunFacts } from '../services/metal/types.ts';

/** What the run has made of the machine until now (domain/metal/run-ends.ts). */
export interface Standing {
  readonly remains: Remains;
  /** The image is on its disk, and the evidence of it is stored. */
  readonly deployed: boolean;
}

export interface StepRecord {
  readonly runId: string;
  readonly step: string;
  readonly attempt: number;
  readonly state: 'started' | 'done' | 'failed' | 'skipped';
  readonly detail: string;
  readonly at: number;
  /** Who brought it about: the workflow, or the person who overrode it. */
  readonly by: string;
}

export interface FinishRunInput {
  readonly runId: string;
  readonly end: RunEnd;
  /** Kebab-case; empty for done. */
  readonly failure: string;
  /** For people. */
  readonly detail: string;
  readonly actor: string;
}

export interface RunMessage {
  readonly runId: string;
  readonly kind: 'override' | 'cancel' | 'give-up';
  readonly step: string;
  readonly actor: string;
  readonly reason: string;
}

export interface MetalRunsPort {
  /** Claims the machine. @throws NOT_FOUND; INVALID_STATE; CONFLICT naming the run that has it; INVALID_INPUT for its profile */
  plan(input: PlanRunInput): Promise<PlannedRun>;
  /** @throws NOT_FOUND */
  read(runId: string): Promise<RunFacts>;
  standing(runId: string): Promise<Standing>;
  /** null: nothing that it sends needs one. The same run again is the same batch. */
  createBatch(runId: string): Promise<{ readonly batchId: string; readonly held: boolean; readonly notAfter: number } | null>;
  record(rows: readonly StepRecord[]): Promise<void>;
  /** Takes the run's entries and what hangs on them (tokens, the ramdisk's identity) out of use. */
  closeBoots(runId: string): Promise<void>;
  /** Identity, disks, interfaces, power, capabilities, pin. */
  recordInventory(input: { runId: string; report: Uint8Array }): Promise<{ readonly summary: string }>;
  /** Disks and identity as the ramdisk reads them. @throws CONFLICT (wrong-machine) when it is another machine */
  recordDisks(input: { runId: string; report: Uint8Array }): Promise<{ readonly summary: string }>;
  recordPower(input: { runId: string; state: PowerState; at: number }): Promise<void>;
  /** REV-005, and before a machine that has an identity is taken into maintenance. */
  endIdentity(input: { runId: string; reason: 'retire' | 'reclaim' }): Promise<{ readonly summary: string }>;
  /** Decides by the facts what is left of the machine, and ends the run; repeated, it answers the same. */
  finish(input: FinishRunInput): Promise<{ readonly end: RunEnd; readonly remains: Remains | null; readonly machineState: string }>;
  /** An operator's message, into the run's record and the audit trail, before it counts. */
  recordMessage(input: RunMessage): Promise<void>;
  /** Rack and site of each; one that is unknown is not in the answer. */
  places(machineIds: readonly string[]): Promise<readonly { machineId: string; rack: string; siteId: string }[]>;
}

/** What takes a key of the deployment: secrets of the run, and evidence, which is verified where the authorities are. */
export interface MetalKeysPort {
  /** Opens the entry of one boot of the run; repeated, it answers the same one. */
  openBootEntry(input: { runId: string; attempt: number; expiresAt: number }): Promise<BootEntry>;
  /** The join string of the system that is about to be deployed, as a secret; repeated, the same reference. */
  openProvisionedJoin(runId: string): Promise<{ readonly joinRef: string }>;
  /** Makes and stores the password that is to be; repeated, nothing changes. */
  storeNextCredential(runId: string): Promise<{ readonly nextRef: string }>;
  /** The next one is the current one from here. */
  adoptCredential(runId: string): Promise<void>;
  /** Verifies, and stores. @throws BAD_SIGNATURE, INVALID_STATE for evidence that is not of this command, boot and run */
  recordEvidence(input: { runId: string; commandId: string; kind: 'erase' | 'deploy'; signed: Uint8Array }): Promise<{
    readonly complete: boolean;
    /** For people: disks, methods, bytes. */
    readonly summary: string;
  }>;
}

export interface SiteAgent {
  readonly nodeId: string;
  readonly connected: boolean;
}

export interface SitesPort {
  /** Active agents of the machine's site and tenant: those with a live session first, then by id. */
  agents(machine: Pick<RunFacts['machine'], 'siteId' | 'tenantId'>): Promise<readonly SiteAgent[]>;
  /** When a node was last seen; null: never. */
  lastSeen(nodeId: string): Promise<number | null>;
}

export interface CommandAnswer {
  readonly state: CommandState;
  readonly nodeId: string;
  readonly kind: string;
  readonly createdAt: number;
  /** Error code and message as they were reported; empty for a success. */
  readonly errorCode: string;
  readonly error: string;
  /** The encoded result message of the kind; null before the end, and for one that failed without. */
  readonly result: Uint8Array | null;
}

export interface AnswersPort {
  /** undefined for an id that was never enqueued. */
  find(commandId: string): Promise<CommandAnswer | undefined>;
}

/** Hints that something happened which a run may wait for, such as a session of its machine; a look follows each. */
export interface RunWords {
  /** From now on, until it is ended. null: here nothing is heard, or too many listen already. */
  listen(runId: string): HeardRun | null;
}

export interface HeardRun {
  /** @returns whether a word came since it listens, or since the last one that was told */
  next(withinMs: number): Promise<boolean>;
  end(): void;
}

export interface MetalControlPorts extends Clock {
  readonly runs: MetalRunsPort;
  readonly words: RunWords;
  readonly sites: SitesPort;
  readonly answers: AnswersPort;
  readonly commands: Pick<CommandControlPorts['commands'], 'cancel'>;
  /** Starts the workflow that watches a batch; one that runs is left alone. */
  readonly watch: (batchId: string) => Promise<void>;
}

export interface MetalSigningPorts extends Clock {
  readonly runs: MetalRunsPort;
  readonly keys: MetalKeysPort;
  readonly sites: SitesPort;
  readonly answers: AnswersPort;
  readonly commands: Pick<CommandControlPorts['commands'], 'registerWait' | 'find' | 'cancel'>;
  readonly queue: CommandSigningPorts['queue'];
}
