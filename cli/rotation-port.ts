/** A rotation as the CLI sees it, whatever carries it: Temporal in production, a fake with the same rules in tests. */
import type {
  AbortMessage,
  ExcludeMessage,
  ForceMessage,
  PauseMessage,
  RotationResult,
  RotationStatus,
} from '../workflows/rotate-command-root/messages.ts';

export type RunState = 'running' | 'completed' | 'failed' | 'cancelled' | 'terminated' | 'timed-out';

export interface RotationRun {
  readonly workflowId: string;
  readonly runId: string;
  readonly state: RunState;
  readonly startedAt: number;
  readonly closedAt: number | null;
  /** null when no worker answers the query. */
  readonly status: RotationStatus | null;
  /** Only of a completed run. */
  readonly result: RotationResult | null;
  /** Why it failed; null otherwise. */
  readonly failure: string | null;
}

export interface RotationPort {
  /** @throws INVALID_STATE when one is running */
  start(message: { actor: string; reason: string }): Promise<{ workflowId: string; runId: string }>;
  /** The newest run. @throws NOT_FOUND when there never was one */
  find(): Promise<RotationRun>;
  force(message: ForceMessage): Promise<RotationStatus>;
  exclude(message: ExcludeMessage): Promise<RotationStatus>;
  abort(message: AbortMessage): Promise<RotationStatus>;
  pause(message: PauseMessage): Promise<void>;
  resume(message: { actor: string }): Promise<void>;
  close(): Promise<void>;
}
