/**
 * What a gateway needs of the database, as a port. Everything a session writes carries its epoch, so a gateway that was
 * paused or cut off can write nothing once a newer session of the node exists (B51, B52).
 *
 * Every method may throw UNAVAILABLE (and other ControlErrors); none of that ends the gateway.
 */
import type { CommandAckRow, CommandRejectRow, CommandResultRow, QueuedCommand } from '../../drizzle/queries/dispatch.ts';
import type { CommandProgressRow } from '../../drizzle/queries/progress.ts';
import type { Revocation } from '../../drizzle/queries/revocations.ts';
import type { SessionTouch } from '../../drizzle/queries/session-touch.ts';
import type { NewSession, OpenedSession } from '../../drizzle/queries/sessions.ts';

export type {
  CommandAckRow,
  CommandProgressRow,
  CommandRejectRow,
  CommandResultRow,
  NewSession,
  OpenedSession,
  QueuedCommand,
  Revocation,
  SessionTouch,
};

/** What the deployment publishes; handed out as these bytes. */
export interface PublishedTrust {
  readonly version: number;
  /** An encoded TrustBundle. */
  readonly body: Uint8Array;
  /** An encoded Signature. */
  readonly signature: Uint8Array;
}

/** A generation's signed desired state, relayed as it is stored (SPEC-007). */
export interface StoredDesiredState {
  readonly generation: number;
  readonly body: Uint8Array;
  readonly signature: Uint8Array;
}

/** What a node holds, or was sent. */
export interface HeldState {
  readonly nodeId: string;
  readonly generation: number;
}

export interface ReadCursor {
  readonly nodeId: string;
  readonly epoch: number;
  readonly afterSeq: number;
}

export interface OpenCommands {
  /** In log order per node; of nodes that are still ours only. */
  readonly commands: readonly QueuedCommand[];
  /** Nodes whose epoch is another one by now. */
  readonly fenced: readonly string[];
}

export interface SessionBatch {
  readonly acks: readonly CommandAckRow[];
  readonly rejects: readonly CommandRejectRow[];
  readonly results: readonly CommandResultRow[];
}

export interface RecordedBatch {
  /** Command ids whose result is stored now, or never will be: the daemon may forget them. */
  readonly settled: readonly string[];
  /** Command ids of sessions that are no longer their node's. */
  readonly fenced: readonly string[];
  /** Results of no command of that node, or of another body. */
  readonly unknown: readonly string[];
}

export interface SessionStore {
  /** Ends what this gateway left open when it died. */
  endSessionsOf(gatewayId: string): Promise<void>;
  /** @throws PERMISSION_DENIED, REVOKED, INVALID_STATE (generation-superseded) */
  openSession(session: NewSession): Promise<OpenedSession>;
  endSession(sessionId: string, reason: string): Promise<void>;
  /** @returns ids of sessions that ended meanwhile */
  touchSessions(touches: readonly SessionTouch[]): Promise<{ readonly ended: readonly string[] }>;
  readOpenCommands(cursors: readonly ReadCursor[], limitPerNode: number): Promise<OpenCommands>;
  /** Which of these sent commands were cancelled. */
  cancelledAmong(commandIds: readonly string[]): Promise<readonly string[]>;
  record(batch: SessionBatch): Promise<RecordedBatch>;
  /** The last word about each command. @returns command ids of sessions that are no longer their node's */
  recordProgress(rows: readonly CommandProgressRow[]): Promise<{ readonly fenced: readonly string[] }>;
  publishedTrust(): Promise<PublishedTrust | null>;
  findDesiredState(nodeId: string): Promise<StoredDesiredState | null>;
  /** Of these nodes, the signed state of those that have a newer generation than the one named. */
  findNewerStates(held: readonly HeldState[]): Promise<ReadonlyMap<string, StoredDesiredState>>;
  readAllRevoked(): Promise<{ readonly seq: number; readonly revocations: readonly Revocation[] }>;
  /** `seq`: the last number that was given out. */
  readRevocationsAfter(seq: number): Promise<{ readonly seq: number; readonly revocations: readonly Revocation[] }>;
}
