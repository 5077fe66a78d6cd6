/** The input of a reboot of many machines: always a batch, released in waves. */
import { problemsOfWavePlan, type WavePlan } from '../../domain/batch/waves.ts';
import { type NodeSelection, type ParsedRunCommand, readNodes, readWindow } from '../run-command/messages.ts';
import { isRecord, kindOf, Shape, textLimits } from '../shared/shape.ts';

export interface RebootNodesInput {
  readonly nodes: NodeSelection;
  readonly actor: string;
  /** For the approvers, and for the log of each machine. */
  readonly reason: string;
  /** Between the acknowledgement and the reboot; default 0. */
  readonly delaySeconds?: number;
  /** Default: a tenth at a time, no failure tolerated, each wave back before the next. */
  readonly waves?: WavePlan;
  /** How long it may wait for approvals and run; default 24 h. */
  readonly windowMs?: number;
}

export const staticSummary = 'Reboot machines in waves, after their approvers have signed';

const carefully: WavePlan = Object.freeze({ percent: 10, maxFailures: 0, pauseMs: 0, healthGate: true });
const longestDelaySeconds = 3_600;

export interface ParsedRebootNodes {
  readonly command: ParsedRunCommand;
  readonly waves: WavePlan;
}

/** @throws ControlError INVALID_INPUT with every problem */
export function parseRebootNodes(value: unknown): ParsedRebootNodes {
  const shape = new Shape('rebootNodes', value, ['nodes', 'actor', 'reason', 'delaySeconds', 'waves', 'windowMs']);
  const nodes = readNodes(shape);
  const actor = shape.text('actor', textLimits.actor);
  const reason = shape.text('reason', textLimits.reason);
  const delaySeconds = shape.get('delaySeconds') ?? 0;
  if (!Number.isInteger(delaySeconds) || (delaySeconds as number) < 0 || (delaySeconds as number) > longestDelaySeconds)
    shape.problem(`delaySeconds must be a whole number from 0 to ${longestDelaySeconds}, got ${kindOf(delaySeconds)}`);
  const windowMs = readWindow(shape);
  const waves = readWaves(shape);
  shape.done();
  const payload = { reason, delaySeconds: delaySeconds as number };
  return {
    command: { kind: 'node.reboot', nodes, payload, actor, reason, deadlineMs: windowMs ?? 24 * 3_600_000, windowMs, batchId: null },
    waves,
  };
}

function readWaves(shape: Shape): WavePlan {
  const value = shape.get('waves');
  if (value === undefined || value === null) return carefully;
  if (!isRecord(value)) {
    shape.problem(`waves must be an object, got ${kindOf(value)}`);
    return carefully;
  }
  const plan = { maxFailures: 0, pauseMs: 0, healthGate: true, ...value } as WavePlan;
  for (const problem of problemsOfWavePlan(plan)) shape.problem(`waves: ${problem}`);
  return plan;
}
