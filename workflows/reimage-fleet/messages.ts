/**
 * The messages of a reimage of many machines: a window that slides over them, never more at once than the limits say, and rules that
 * stop it. Each machine is a provision run of its own, with its own batch, and is cancelled, overridden and given up by itself.
 */
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import { isNodeId } from '../../domain/commands/ids.ts';
import { readProfile } from '../shared/machine-messages.ts';
import { isRecord, kindOf, readSigned, Shape, type Signed } from '../shared/shape.ts';

export interface FleetLimits {
  /** Machines in work at once. */
  readonly total: number;
  readonly perRack: number;
  readonly perSite: number;
}

export interface FleetStopRules {
  /** One more failure than this, and no further machine is begun. */
  readonly maxFailures: number;
  /** The same as a share of those that have ended, from the tenth on; 100 never stops. */
  readonly maxFailurePercent: number;
}

export interface ReimageFleetInput extends Signed {
  /** Names the run, and its workflow: `fleet/<run>/reimage`. */
  readonly run: string;
  readonly machines: readonly string[];
  readonly profile: Readonly<Record<string, unknown>>;
  readonly limits?: Partial<FleetLimits>;
  readonly stop?: Partial<FleetStopRules>;
  /** Of the run before this one, when it goes on as a new run; never given by people. */
  readonly carried?: unknown;
}

export interface ParsedReimageFleet extends Signed {
  readonly run: string;
  readonly machines: readonly string[];
  readonly profile: Readonly<Record<string, unknown>>;
  readonly limits: FleetLimits;
  readonly stop: FleetStopRules;
  readonly carried: unknown;
}

export const fleetPhases = Object.freeze(['planning', 'rolling', 'paused', 'draining', 'done'] as const);
export type FleetPhase = (typeof fleetPhases)[number];

export interface FleetMachineEnd {
  readonly machineId: string;
  readonly end: string;
  readonly remains: string | null;
  readonly failure: string;
}

export interface FleetStatus {
  readonly run: string;
  readonly phase: FleetPhase;
  readonly since: number;
  readonly total: number;
  readonly waiting: number;
  readonly inWork: readonly { readonly machineId: string; readonly rack: string; readonly site: string }[];
  readonly done: number;
  readonly failed: number;
  readonly cancelled: number;
  /** The latest that did not end as they were meant to. */
  readonly failures: readonly FleetMachineEnd[];
  readonly paused: (Signed & { readonly since: number }) | null;
  /** Why no further machine is begun; empty while there may be. */
  readonly stopped: string;
  readonly limits: FleetLimits;
  readonly stop: FleetStopRules;
  readonly startedBy: string;
  readonly reason: string;
}

export interface FleetResult {
  readonly run: string;
  readonly outcome: 'done' | 'stopped' | 'cancelled';
  readonly total: number;
  readonly done: number;
  readonly failed: number;
  readonly cancelled: number;
  readonly notBegun: number;
  readonly failures: readonly FleetMachineEnd[];
  readonly stopped: string;
}

export interface CancelFleetMessage extends Signed {
  /** true: the runs that are in work are cancelled too; default: they end by themselves. */
  readonly running?: boolean;
}

export const status = defineQuery<FleetStatus>('status');
/** No further machine is begun; see CancelFleetMessage for those in work. */
export const cancel = defineUpdate<FleetStatus, [CancelFleetMessage]>('cancel');
/** Ends the wait for machines in work: their runs go on by themselves. */
export const giveUp = defineUpdate<FleetStatus, [Signed]>('giveUp');
/** Lifts a stop rule: what failed until now counts no more. */
export const override = defineUpdate<FleetStatus, [Signed]>('override');
export const pause = defineSignal<[Signed]>('pause');
export const resume = defineSignal<[unknown?]>('resume');

export const workflowType = 'reimageFleet';
export const staticSummary = 'Reimage many machines: a window that slides, limits by rack and site, rules that stop it';

export const mostMachines = 20_000;
const defaults = Object.freeze({
  limits: Object.freeze({ total: 20, perRack: 4, perSite: 20 }),
  stop: Object.freeze({ maxFailures: 3, maxFailurePercent: 10 }),
});
const atMost = Object.freeze({ total: 500, perRack: 500, perSite: 500, maxFailures: mostMachines, maxFailurePercent: 100 });

const runForm = /^[a-z0-9][a-z0-9.-]{0,39}$/;

/** @throws ControlError INVALID_INPUT with every problem */
export function parseReimageFleet(value: unknown): ParsedReimageFleet {
  const shape = new Shape(workflowType, value, ['run', 'machines', 'profile', 'limits', 'stop', 'actor', 'reason', 'carried']);
  const run = shape.get('run');
  if (typeof run !== 'string' || !runForm.test(run))
    shape.problem(`run must be a name of 1 to 40 small letters, digits, dots or dashes, got ${kindOf(run)}`);
  const message: ParsedReimageFleet = {
    run: typeof run === 'string' ? run : '',
    machines: readMachines(shape),
    profile: readProfile(shape),
    limits: readNumbers(shape, { name: 'limits', least: 1, defaults: defaults.limits }),
    stop: readNumbers(shape, { name: 'stop', least: 0, defaults: defaults.stop }),
    ...readSigned(shape),
    carried: shape.get('carried') ?? null,
  };
  shape.done();
  return message;
}

function readMachines(shape: Shape): readonly string[] {
  const value = shape.get('machines');
  if (!Array.isArray(value) || value.length === 0) {
    shape.problem(
      `machines must be a list of machine ids that is not empty, got ${Array.isArray(value) ? 'an empty list' : kindOf(value)}`,
    );
    return [];
  }
  if (value.length > mostMachines) shape.problem(`machines lists ${value.length} machines, at most ${mostMachines}: use several runs`);
  const bad = value.findIndex((id) => typeof id !== 'string' || !isNodeId(id));
  if (bad >= 0) shape.problem(`machines[${bad}] is not a machine id, got ${describe(value[bad])}`);
  const distinct = new Set<unknown>();
  for (const id of value) {
    if (distinct.has(id) && typeof id === 'string') shape.problem(`machines names ${id.slice(0, 64)} twice`);
    distinct.add(id);
  }
  return value as string[];
}

const describe = (value: unknown): string =>
  typeof value === 'string' && value !== '' ? JSON.stringify(value.slice(0, 64)) : kindOf(value);

interface Numbers<T> {
  readonly name: string;
  readonly least: number;
  readonly defaults: T;
}

function readNumbers<T extends Readonly<Record<string, number>>>(shape: Shape, { name, least, defaults: fallback }: Numbers<T>): T {
  const value = shape.get(name);
  if (value === undefined || value === null) return fallback;
  if (!isRecord(value)) {
    shape.problem(`${name} must be an object, got ${kindOf(value)}`);
    return fallback;
  }
  for (const [field, number] of Object.entries(value)) {
    const known = Object.hasOwn(fallback, field);
    if (!known) shape.problem(`${name}.${field.slice(0, 40)} is not known (known: ${Object.keys(fallback).join(', ')})`);
    const max = atMost[field as keyof typeof atMost];
    if (known && !(Number.isInteger(number) && (number as number) >= least && (number as number) <= max))
      shape.problem(
        `${name}.${field} must be a whole number from ${least} to ${max}, got ${typeof number === 'number' ? number : kindOf(number)}`,
      );
  }
  return { ...fallback, ...(value as Partial<T>) };
}

/** @throws ControlError INVALID_INPUT */
export function parseCancelFleet(value: unknown): Required<CancelFleetMessage> {
  const shape = new Shape('cancel', value, ['actor', 'reason', 'running']);
  const running = shape.get('running') ?? false;
  if (typeof running !== 'boolean') shape.problem(`running must be true or false, got ${kindOf(running)}`);
  const message = { ...readSigned(shape), running: running === true };
  shape.done();
  return message;
}

/** @throws ControlError INVALID_INPUT */
export function parseFleetWords(what: string, value: unknown): Signed {
  const shape = new Shape(what, value, ['actor', 'reason']);
  const message = readSigned(shape);
  shape.done();
  return message;
}
