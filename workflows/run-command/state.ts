/** What one run of a command remembers, and how its end is told. */
import { maxCommandPrefixLength } from '../../domain/commands/ids.ts';
import { type CommandState, isFinished } from '../../domain/commands/states.ts';
import { showInstant } from '../../domain/time.ts';
import type { CommandFailure, CommandTally, ParsedRunCommand, RunCommandStatus } from './messages.ts';

export interface CommandEnd {
  readonly state: CommandState;
  /** Empty for a success. */
  readonly error: string;
}

interface NodeEnd {
  readonly nodeId: string;
  readonly commandId: string;
  readonly end: unknown;
}

/** What a command id cannot hold: it goes through logs, records and headers as it is. */
const unprintable = /[^\x21-\x7e]/g;

/**
 * What the ids of a run's commands begin with: its workflow's id and the first digits of its run id. A workflow id that leaves
 * no room for a node's id, or that no command id can hold, is cut and told apart by the whole run id.
 */
export function commandPrefixOf({ workflowId, runId }: { readonly workflowId: string; readonly runId: string }): string {
  const plain = `${workflowId}/${runId.slice(0, 8)}`;
  const printable = workflowId.replace(unprintable, '_');
  if (plain.length <= maxCommandPrefixLength && printable === workflowId) return plain;
  return `${printable.slice(0, maxCommandPrefixLength - 1 - runId.length)}/${runId}`;
}

const failuresKept = 20;
const errorKept = 300;

export class RunCommandState {
  readonly input: ParsedRunCommand;
  readonly commandPrefix: string;
  deadline: number;
  batchId: string | null = null;
  /** This run made its batch, and answers for it. */
  makesBatch = false;
  phase: RunCommandStatus['phase'] = 'enqueueing';
  enqueued = 0;
  finished = 0;

  constructor(input: ParsedRunCommand, commandPrefix: string, now: number) {
    this.input = input;
    this.commandPrefix = commandPrefix;
    this.deadline = now + input.deadlineMs;
  }

  /** null: every active node. */
  get listed(): readonly string[] | null {
    return this.input.nodes === 'all' ? null : this.input.nodes;
  }

  get target(): string {
    const { listed } = this;
    if (listed === null) return 'every node';
    return listed.length === 1 ? String(listed[0]) : `${listed.length} nodes`;
  }

  /** Its commands wait for approvals: the end of the batch is theirs. */
  tookBatch({ batchId, notAfter }: { readonly batchId: string; readonly notAfter: number }): void {
    this.batchId = batchId;
    this.makesBatch = true;
    this.deadline = notAfter;
  }

  /** What approvers read; the words of whoever asked, where there are any. */
  get approversReason(): string {
    const { kind, actor, reason } = this.input;
    return (reason === '' ? `${kind} on ${this.target}, asked for by ${actor}` : reason).slice(0, 500);
  }

  get waitingOn(): readonly string[] {
    return this.batchId === null ? (this.listed ?? ['nodes']) : [`batch/${this.batchId}`];
  }

  commandIdOf(nodeId: string): string {
    return `${this.commandPrefix}/${nodeId}`;
  }

  /** Anyone with write access may complete an activity: what does not look like an end is counted as one that is unknown. */
  tally(ends: readonly NodeEnd[]): CommandTally {
    const states: Record<string, number> = {};
    const failures: CommandFailure[] = [];
    for (const { nodeId, commandId, end } of ends) {
      const { state, error } = readEnd(end);
      states[state] = (states[state] ?? 0) + 1;
      if (state !== 'done' && failures.length < failuresKept) failures.push({ nodeId, commandId, state, error: error.slice(0, errorKept) });
    }
    return { total: ends.length, states, failures };
  }

  status(): RunCommandStatus {
    const { phase, commandPrefix, enqueued, finished, batchId } = this;
    return { phase, kind: this.input.kind, commandPrefix, enqueued, finished, batchId };
  }

  describe(): string {
    return [
      `**${this.phase}**: ${this.input.kind} on ${this.target}, asked for by ${this.input.actor}`,
      `- commands: ${this.enqueued} enqueued, none starts after ${showInstant(this.deadline)}`,
      ...(this.batchId === null ? [] : [`- in batch ${this.batchId}: \`better-compute batch show ${this.batchId}\``]),
      '- waiting for a node? `better-compute stuck`; one command: `better-compute commands show <id>`',
    ].join('\n');
  }
}

function readEnd(value: unknown): { state: string; error: string } {
  if (typeof value !== 'object' || value === null) return { state: 'unknown', error: 'the activity was completed by hand without an end' };
  const { state, error } = value as Partial<Record<keyof CommandEnd, unknown>>;
  const known = typeof state === 'string' && ['done', 'failed', 'expired', 'cancelled', 'rejected', 'interrupted'].includes(state);
  return known && isFinished(state as CommandState)
    ? { state, error: typeof error === 'string' ? error : '' }
    : { state: 'unknown', error: 'the activity was completed by hand without an end' };
}
