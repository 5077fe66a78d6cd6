/** What the command activities need from the outside: the log, the waits, the nodes. */
import type { CommandKind, NodeRole } from '../domain/commands/kinds.ts';
import type { CommandState } from '../domain/commands/states.ts';
import type { EarlierAttempt } from '../services/command-body.ts';
import type { Clock, ResignPort } from './rotation-ports.ts';

export interface CommandView {
  readonly id: string;
  readonly nodeId: string;
  readonly state: CommandState;
  /** Empty for a success; else the reject reason or the error the machine reported. */
  readonly error: string;
}

export interface CommandCounts {
  readonly total: number;
  readonly open: number;
  readonly states: Readonly<Record<string, number>>;
}

export interface WaitFor {
  readonly commandId: string;
  readonly workflowId: string;
  readonly runId: string;
  readonly activityId: string;
}

/** Reads and moves commands; signs nothing. */
export interface CommandLogPort {
  find(commandId: string): Promise<CommandView | undefined>;
  /** Registers a wait in the order that misses no end: `finished` means the end was there already. */
  registerWait(wait: WaitFor): Promise<'waiting' | 'finished' | 'unknown'>;
  /** Ids are the prefix, a slash and the node. */
  count(commandPrefix: string): Promise<CommandCounts>;
  failures(commandPrefix: string, limit: number): Promise<readonly CommandView[]>;
  openOf(commandPrefix: string, limit: number): Promise<readonly CommandView[]>;
  cancel(commandId: string): Promise<void>;
  expire(): Promise<number>;
  /** Finished commands that someone waits for and whose completion is not on its way. */
  queueLostCompletions(): Promise<number>;
  /** Lets rows go that nothing reads any more; a batch a call. */
  prune(): Promise<number>;
}

export interface CommandControlPorts extends Clock {
  readonly commands: CommandLogPort;
  /** Resolves as soon as the relay sees the end of the command, or after `withinMs`. */
  readonly nextEnd: (commandId: string, withinMs: number) => Promise<void>;
}

export interface EnqueueItem {
  readonly id: string;
  readonly nodeId: string;
  readonly kind: CommandKind;
  /** An encoded google.protobuf.Any. */
  readonly payload: Uint8Array;
  /** Instant after which the command must not start. */
  readonly deadline: number;
  readonly requestedBy: string;
  /** Held until that batch is approved and released. */
  readonly batchId?: string;
  /** The first command that asked for the same action, where nobody knows what became of it. */
  readonly earlier?: EarlierAttempt;
}

export interface CommandSigningPorts extends Clock {
  readonly queue: { enqueue(items: readonly EnqueueItem[]): Promise<{ enqueued: number; existing: number }> };
  /** Active nodes of these roles after an id, in order. */
  readonly nodes: { page(input: { roles: readonly NodeRole[]; after: string; limit: number }): Promise<readonly string[]> };
  /** Nodes of a batch's scope after an id, in order: what it holds, whoever joined since. */
  readonly batchNodes: { page(input: { batchId: string; after: string; limit: number }): Promise<readonly string[]> };
  readonly resign: ResignPort;
  /** The clock that ends of keys are judged by: of the database, not of this host. */
  readonly clock: () => Promise<number>;
  readonly access: {
    /** Desired state about logins that is not as the bundle and the database say; answers how many were written. */
    bringUpToDate(onProgress: (done: number) => void): Promise<number>;
  };
}
