/** The input of one command on one or many nodes, and what comes back: counts and a few failures, whatever the fleet. */
import { defineQuery } from '@temporalio/workflow';
import { type CommandKind, commandKinds, findCommandKind } from '../../domain/commands/kinds.ts';
import { isRecord, kindOf, Shape, textLimits } from '../shared/shape.ts';

export type NodeSelection = readonly string[] | 'all';

export interface RunCommandInput {
  readonly kind: CommandKind;
  readonly nodes: NodeSelection;
  /** Proto JSON of the kind's payload message; absent: an empty one. */
  readonly payload?: Readonly<Record<string, unknown>>;
  readonly actor: string;
  readonly reason?: string;
  /** From now to the last moment the command may start on a machine; default: an hour and the kind's own timeout. */
  readonly deadlineMs?: number;
  /** A batch that was created before and holds these operations. */
  readonly batchId?: string;
}

export interface ParsedRunCommand {
  readonly kind: CommandKind;
  readonly nodes: NodeSelection;
  readonly payload: Readonly<Record<string, unknown>>;
  readonly actor: string;
  readonly reason: string;
  readonly deadlineMs: number;
  /** deadlineMs as it was asked for: the window of a batch that this run makes. null: the default of a batch. */
  readonly windowMs: number | null;
  readonly batchId: string | null;
}

export interface CommandFailure {
  readonly nodeId: string;
  readonly commandId: string;
  readonly state: string;
  readonly error: string;
}

export interface CommandTally {
  readonly total: number;
  /** State name → commands in it (domain/commands/states.ts). */
  readonly states: Readonly<Record<string, number>>;
  /** The first few that did not succeed. */
  readonly failures: readonly CommandFailure[];
}

export interface RunCommandStatus {
  readonly phase: 'enqueueing' | 'running' | 'cancelling' | 'done';
  readonly kind: string;
  readonly commandPrefix: string;
  readonly enqueued: number;
  readonly finished: number;
  /** null: its commands need none. */
  readonly batchId: string | null;
}

export type RunCommandResult = CommandTally & { readonly kind: string; readonly commandPrefix: string; readonly batchId?: string };

export const status = defineQuery<RunCommandStatus>('status');

export const staticSummary = 'Run one command on one or many nodes';

export const maxListedNodes = 2_000;
/** Up to this many nodes, each command is an activity of its own: a row in the UI that can be paused, reset or completed. */
export const awaitedOneByOne = 20;
const longestDeadlineMs = 7 * 24 * 3_600_000;
const graceMs = 3_600_000;
/** A batch is open for at least this long (BAT-044). */
const leastWindowMs = 60_000;
const longestBatchId = 128;

/** @throws ControlError INVALID_INPUT with every problem */
export function parseRunCommand(value: unknown): ParsedRunCommand {
  const shape = new Shape('runCommand', value, ['kind', 'nodes', 'payload', 'actor', 'reason', 'deadlineMs', 'batchId']);
  const kind = shape.oneOf('kind', Object.keys(commandKinds) as CommandKind[]);
  const message: ParsedRunCommand = {
    kind,
    nodes: readNodes(shape),
    payload: readPayload(shape),
    actor: shape.text('actor', textLimits.actor),
    reason: shape.has('reason') ? shape.text('reason', textLimits.reason) : '',
    deadlineMs: readDeadline(shape, graceMs + (findCommandKind(kind)?.timeoutMs ?? 0)),
    windowMs: readWindow(shape, 'deadlineMs'),
    batchId: shape.has('batchId') ? shape.text('batchId', longestBatchId) : null,
  };
  shape.done();
  return message;
}

export function readNodes(shape: Shape): NodeSelection {
  const value = shape.get('nodes');
  if (value === 'all') return 'all';
  if (!Array.isArray(value) || value.length === 0) {
    shape.problem(
      `nodes must be a list of node ids that is not empty, or "all", got ${Array.isArray(value) ? 'an empty list' : kindOf(value)}`,
    );
    return [];
  }
  if (value.length > maxListedNodes)
    shape.problem(`nodes lists ${value.length} nodes, at most ${maxListedNodes}: use "all", or several runs`);
  const bad = value.find((node) => typeof node !== 'string' || node === '' || node.length > textLimits.node);
  if (bad !== undefined) shape.problem(`nodes contains ${kindOf(bad)} where a node id belongs`);
  const distinct = [...new Set(value as string[])];
  return distinct.length > 1 ? distinct.sort() : distinct;
}

function readPayload(shape: Shape): Readonly<Record<string, unknown>> {
  if (!shape.has('payload')) return {};
  const value = shape.get('payload');
  if (isRecord(value)) return value;
  shape.problem(`payload must be an object, got ${kindOf(value)}`);
  return {};
}

function readDeadline(shape: Shape, fallbackMs: number): number {
  if (!shape.has('deadlineMs')) return fallbackMs;
  const value = shape.get('deadlineMs');
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1_000 && value <= longestDeadlineMs) return value;
  shape.problem(
    `deadlineMs must be a whole number of milliseconds from 1000 to ${longestDeadlineMs}, got ${typeof value === 'number' ? value : kindOf(value)}`,
  );
  return fallbackMs;
}

/** null: not asked for; what is asked for badly is named by whoever reads the same field as a deadline. */
export function readWindow(shape: Shape, name: 'deadlineMs' | 'windowMs' = 'windowMs'): number | null {
  const value = shape.get(name);
  if (value === undefined || value === null) return null;
  if (typeof value === 'number' && Number.isInteger(value) && value <= longestDeadlineMs) return Math.max(leastWindowMs, value);
  if (name === 'windowMs')
    shape.problem(`windowMs must be a whole number of milliseconds up to ${longestDeadlineMs}, got ${kindOf(value)}`);
  return null;
}
