/** A rotation as the CLI sees it, whatever carries it: Temporal in production, a fake with the same rules in tests. */

import type { ApproverSetResult, ApproverSetStatus } from '../workflows/rotate-approver-set/messages.ts';
import type {
  AbortMessage,
  ExcludeMessage,
  ForceMessage,
  PauseMessage,
  RotationResult,
  RotationStatus,
} from '../workflows/rotate-command-root/messages.ts';
import type { KeyRotationResult, KeyRotationStatus } from '../workflows/rotate-key/messages.ts';

export type RunState = 'running' | 'completed' | 'failed' | 'cancelled' | 'terminated' | 'timed-out';

export type AnyStatus = RotationStatus | KeyRotationStatus | ApproverSetStatus;
export type AnyResult = RotationResult | KeyRotationResult | ApproverSetResult;

export interface RotationRun<Status = RotationStatus, Result = RotationResult> {
  readonly workflowId: string;
  readonly runId: string;
  readonly state: RunState;
  readonly startedAt: number;
  readonly closedAt: number | null;
  /** null when no worker answers the query. */
  readonly status: Status | null;
  /** The newest word of the step that waits: it may know more than the status, which only hears now and then. */
  readonly waiting: string | null;
  /** Only of a completed run. */
  readonly result: Result | null;
  /** Why it failed; null otherwise. */
  readonly failure: string | null;
}

export type AnyRotationRun = RotationRun<AnyStatus, AnyResult>;
export type AnyRotationPort = RotationPort<AnyStatus, AnyResult>;

export interface RotationPort<Status = RotationStatus, Result = RotationResult> {
  /** @throws INVALID_STATE when one is running */
  start(message: { actor: string; reason: string }): Promise<{ workflowId: string; runId: string }>;
  /** The newest run. @throws NOT_FOUND when there never was one */
  find(): Promise<RotationRun<Status, Result>>;
  force(message: ForceMessage): Promise<Status>;
  exclude(message: ExcludeMessage): Promise<Status>;
  abort(message: AbortMessage): Promise<Status>;
  pause(message: PauseMessage): Promise<void>;
  resume(message: { actor: string }): Promise<void>;
  close(): Promise<void>;
}
