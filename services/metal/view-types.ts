/** Machines, runs and sites as operators look at them: types only. */
import type { CommandProgress } from '../../domain/commands/progress.ts';
import type { CommandState } from '../../domain/commands/states.ts';
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import type { RunSummary as KnownRun } from './types.ts';

/** Whose machines are seen. */
export type SeenTenants = readonly string[] | 'all';

export interface MachineView {
  readonly id: string;
  readonly tenantId: string;
  readonly siteId: string;
  readonly rack: string;
  readonly state: MachineState;
  readonly stateSince: number;
  readonly stateReason: string;
  readonly manufacturer: string;
  readonly model: string;
  readonly memoryBytes: number;
  readonly processors: number;
  readonly profileName: string;
  readonly power: string;
  readonly powerAt: number | null;
  readonly inspectedAt: number | null;
  readonly createdAt: number;
  readonly createdBy: string;
  /** Host and port of its controller; empty when it has none. */
  readonly bmc: string;
  readonly connected: boolean;
  readonly lastSeenAt: number | null;
  /** The open run, with the step it is at. */
  readonly run: OpenRun | null;
}

export interface OpenRun {
  readonly id: string;
  readonly kind: RunKind;
  readonly startedAt: number;
  readonly step: string;
  readonly attempt: number;
  readonly stepSince: number;
}

export interface MachineDetail extends MachineView {
  readonly systemId: string;
  /** Of the controller's key; null before the first contact. */
  readonly pinSha256: string | null;
  readonly credentialRef: string;
  readonly identities: readonly { readonly source: string; readonly value: string; readonly origin: string; readonly lastSeenAt: number }[];
  /** Values that others have too, which tell nobody apart (M59); `others` of the tenants that the caller sees, `hidden` of the rest. */
  readonly shared: readonly { readonly value: string; readonly others: readonly string[]; readonly hidden: number }[];
  readonly disks: readonly MachineDisk[];
  /** The newest first, a few. */
  readonly runs: readonly RunSummary[];
  /** Commands that run on the machine itself and say how far they are. */
  readonly working: readonly { readonly commandId: string; readonly kind: string; readonly progress: CommandProgress }[];
}

export interface MachineDisk {
  readonly name: string;
  readonly serial: string;
  readonly wwn: string;
  readonly model: string;
  readonly sizeBytes: number;
  readonly transport: string;
  readonly origin: string;
  readonly seenAt: number;
}

/** The profile is in the plan, which no list reads. */
export type RunSummary = Omit<KnownRun, 'profileName'>;

export interface RunDetail extends RunSummary {
  readonly siteId: string;
  readonly bmc: string;
  readonly steps: readonly RunStepView[];
  readonly commands: readonly RunCommand[];
  readonly evidence: readonly RunEvidence[];
}

export interface RunStepView {
  readonly step: string;
  readonly attempt: number;
  readonly state: 'started' | 'done' | 'failed' | 'skipped';
  readonly detail: string;
  readonly actor: string;
  readonly startedAt: number;
  readonly endedAt: number | null;
}

export interface RunCommand {
  readonly id: string;
  readonly nodeId: string;
  readonly kind: string;
  readonly state: CommandState;
  readonly createdAt: number;
  readonly finishedAt: number | null;
  /** What the machine or its controller said; empty for a success. */
  readonly answer: string;
  readonly progress?: CommandProgress;
}

export interface RunEvidence {
  readonly id: string;
  readonly kind: 'erase' | 'deploy';
  readonly commandId: string;
  readonly complete: boolean;
  readonly finishedAt: number;
}
