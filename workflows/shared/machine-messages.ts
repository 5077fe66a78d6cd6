/**
 * What every run on a machine understands, and what it answers. A run is one provision, retirement, inspection or change of
 * credentials of one machine; its workflow's id names both, so that there is one of a kind at a time.
 *
 * `override` says "I have checked" of the step that waits, `cancel` takes back what can be taken back and ends the run, `giveUp` ends it
 * where it stands: it reaches every state, also the way back, so that nothing has to be deleted to get unstuck (M58). Each needs an
 * actor and a reason; none of them can make a disk clean or an approval given.
 */
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import { isNodeId, maxNodeIdLength } from '../../domain/commands/ids.ts';
import type { Remains, RunEnd, RunKind } from '../../domain/metal/run-ends.ts';
import { isRecord, kindOf, readSigned, Shape, type Signed } from './shape.ts';

/** In the order in which they come; a run skips those it has no step for. */
export const runPhases = Object.freeze([
  'planning',
  'waiting-approvals',
  'reading-bmc',
  'changing-credentials',
  'revoking',
  'booting',
  'waiting-ramdisk',
  'diagnosing',
  'wiping',
  'deploying',
  'starting-system',
  'waiting-node',
  'running-steps',
  'powering-off',
  'held',
  'going-back',
  'finishing',
  'done',
] as const);
export type RunPhase = (typeof runPhases)[number];

export interface MachineRunInput {
  readonly machineId: string;
  readonly actor: string;
  readonly reason: string;
}

export interface OverrideMessage extends Signed {
  /** The step that was checked; it has to be the one that waits. */
  readonly step: string;
}
export type CancelRunMessage = Signed;
export type GiveUpMessage = Signed;

export interface LastAnswer {
  readonly commandId: string;
  /** Of the command (domain/commands/states.ts). */
  readonly state: string;
  /** What the machine, the site agent or the management controller said; empty for a success. */
  readonly message: string;
  readonly at: number;
}

export interface RunStatus {
  readonly machineId: string;
  readonly kind: RunKind;
  /** null before the plan is made. */
  readonly runId: string | null;
  readonly siteId: string | null;
  /** Host and port of the management controller. */
  readonly bmc: string | null;
  readonly phase: RunPhase;
  /** Name of the step in the runbook; empty between steps. */
  readonly step: string;
  /** Counts from 1 in each step. */
  readonly attempt: number;
  readonly since: number;
  /** When the step that waits is given up; null: it has no end of its own. */
  readonly deadline: number | null;
  /** Whom or what it waits for, in words; empty while it waits for nobody. */
  readonly waitsFor: string;
  readonly last: LastAnswer | null;
  /** What to type next. */
  readonly next: string;
  readonly batchId: string | null;
  readonly steps: readonly RunStepStatus[];
  readonly messages: readonly (Signed & { readonly kind: 'override' | 'cancel' | 'give-up'; readonly step: string; readonly at: number })[];
  /** null while it runs. */
  readonly end: RunEnd | null;
  readonly remains: Remains | null;
  /** Why it failed, kebab-case; empty otherwise. */
  readonly failure: string;
  readonly startedBy: string;
  readonly reason: string;
}

export interface RunStepStatus {
  readonly step: string;
  readonly attempt: number;
  readonly state: 'started' | 'done' | 'failed' | 'skipped' | 'overridden';
  readonly detail: string;
  readonly at: number;
}

export interface RunResult {
  readonly machineId: string;
  readonly kind: RunKind;
  readonly runId: string | null;
  readonly end: RunEnd;
  /** null for a run that ended as it was meant to (domain/metal/run-ends.ts says what it means). */
  readonly remains: Remains | null;
  readonly failure: string;
  readonly detail: string;
  readonly batchId: string | null;
  readonly reboots: number;
}

export const status = defineQuery<RunStatus>('status');
export const override = defineUpdate<RunStatus, [OverrideMessage]>('override');
export const giveUp = defineUpdate<RunStatus, [GiveUpMessage]>('giveUp');
export const cancel = defineUpdate<RunStatus, [CancelRunMessage]>('cancel');
/** The same without an answer, for hours in which no worker runs. */
export const overrideSignal = defineSignal<[OverrideMessage]>('overrideSignal');
export const giveUpSignal = defineSignal<[GiveUpMessage]>('giveUpSignal');
export const cancelSignal = defineSignal<[CancelRunMessage]>('cancelSignal');

const longestStep = 40;

/** @throws ControlError INVALID_INPUT with every problem */
export function parseOverride(value: unknown): OverrideMessage {
  const shape = new Shape('override', value, ['step', 'actor', 'reason']);
  const message = { step: shape.text('step', longestStep), ...readSigned(shape) };
  shape.done();
  return message;
}

function parseWords(what: string, value: unknown): Signed {
  const shape = new Shape(what, value, ['actor', 'reason']);
  const message = readSigned(shape);
  shape.done();
  return message;
}

/** @throws ControlError INVALID_INPUT */
export const parseCancel = (value: unknown): CancelRunMessage => parseWords('cancel', value);
/** @throws ControlError INVALID_INPUT */
export const parseGiveUp = (value: unknown): GiveUpMessage => parseWords('giveUp', value);

/** Its id is a name in ids of commands, of workflows and of certificates. */
export function readMachineId(shape: Shape, name = 'machineId'): string {
  const value = shape.get(name);
  if (typeof value === 'string' && isNodeId(value)) return value;
  const shown = typeof value === 'string' && value !== '' ? JSON.stringify(value.slice(0, maxNodeIdLength + 1)) : kindOf(value);
  shape.problem(`${name} must be 1 to ${maxNodeIdLength} letters, digits, dots, dashes or underscores, got ${shown}`);
  return '';
}

export const machineFields = ['machineId', 'actor', 'reason'] as const;

export const readMachineRun = (shape: Shape): MachineRunInput => ({ machineId: readMachineId(shape), ...readSigned(shape) });

/** @throws ControlError INVALID_INPUT with every problem */
export function parseMachineRun(what: string, value: unknown): MachineRunInput {
  const shape = new Shape(what, value, machineFields);
  const message = readMachineRun(shape);
  shape.done();
  return message;
}

/** Of a profile, as JSON. */
const largestProfile = 65_536;

/** A profile as it was loaded and judged where the run was asked for; the plan judges it again. */
export function readProfile(shape: Shape): Readonly<Record<string, unknown>> {
  const value = shape.get('profile');
  if (!isRecord(value)) {
    shape.problem(`profile must be a profile's document (profiles/*.yaml), got ${kindOf(value)}`);
    return {};
  }
  const size = JSON.stringify(value).length;
  if (size > largestProfile) shape.problem(`profile has ${size} bytes as JSON, at most ${largestProfile} are allowed`);
  return value;
}
