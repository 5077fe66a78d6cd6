/** A command on every node each second, for as long as the demonstration runs: the proof that a rotation disturbs nothing. */
import { once, setMaxListeners } from 'node:events';
import type { Client } from '@temporalio/client';
import { second } from '../../../domain/time.ts';
import { taskQueues, workflowIds } from '../../../temporal.config.ts';
import { type RunCommandInput, type RunCommandResult, staticSummary } from '../../../workflows/run-command/messages.ts';

export interface TrafficCount {
  /** Workflows that were started. */
  workflows: number;
  /** Commands that ended as done. */
  run: number;
  rejected: number;
  /** Commands that ended in any other way. */
  failed: number;
  /** The first few that did not succeed, in words. */
  readonly failures: string[];
}

export interface Traffic {
  readonly count: Readonly<TrafficCount>;
  /** Starts no more and waits for what is under way. @throws the signal's reason once it is aborted: no command may hold up the end */
  finish(signal: AbortSignal): Promise<void>;
  /** Starts no more and lets go of what is under way: its workflows end by themselves. */
  stop(): Promise<void>;
}

const everyMs = second;
const failuresKept = 10;

export interface TrafficOptions {
  /** Names its workflows. */
  readonly run: string;
  /** The demonstration's own daemons: another machine of the fleet may be away, and its commands would wait for it for an hour. */
  readonly nodes: readonly string[];
}

export function startTraffic(client: Client, { run, nodes }: TrafficOptions): Traffic {
  const count: TrafficCount = { workflows: 0, run: 0, rejected: 0, failed: 0, failures: [] };
  const open = new Set<Promise<void>>();
  const given = new AbortController();
  // As many calls hang on it as commands wait for a daemon.
  setMaxListeners(0, given.signal);
  const tick = (): void => {
    count.workflows += 1;
    const unique = `${run}-${count.workflows}`;
    // The calls are let go of before the connection closes: one that is retried on a closed connection would throw at nobody.
    const one = client.connection
      .withAbortSignal(given.signal, () => runOnce(client, unique, nodes))
      .then((result) => add(count, result))
      .catch((error: unknown) => given.signal.aborted || note(count, error instanceof Error ? error.message : String(error)))
      .then(() => void open.delete(one));
    open.add(one);
  };
  tick();
  const timer = setInterval(tick, everyMs);
  return {
    count,
    stop: async () => {
      clearInterval(timer);
      given.abort();
      await Promise.all(open);
    },
    finish: async (signal) => {
      clearInterval(timer);
      const ended = new AbortController();
      // Rejects when the signal comes; let go of when the commands were faster.
      const interrupted = once(signal, 'abort', { signal: ended.signal }).then(() => signal.throwIfAborted());
      try {
        signal.throwIfAborted();
        await Promise.race([Promise.all(open), interrupted]);
      } finally {
        ended.abort();
        await interrupted.catch(() => undefined);
      }
    },
  };
}

async function runOnce(client: Client, unique: string, nodes: readonly string[]): Promise<RunCommandResult> {
  const input: RunCommandInput = { kind: 'inventory.refresh', nodes, actor: 'demonstration' };
  return (await client.workflow.execute('runCommand', {
    workflowId: workflowIds.runCommand(unique),
    taskQueue: taskQueues.control,
    args: [input],
    staticSummary,
  })) as RunCommandResult;
}

function add(count: TrafficCount, { states, failures }: RunCommandResult): void {
  for (const [state, commands] of Object.entries(states)) {
    if (state === 'done') count.run += commands;
    else if (state === 'rejected') count.rejected += commands;
    else count.failed += commands;
  }
  for (const { nodeId, state, error } of failures) keep(count, `${nodeId}: ${state} ${error}`);
}

/** The workflow itself did not end well: its commands are unknown, and that is told as a failure. */
function note(count: TrafficCount, message: string): void {
  count.failed += 1;
  keep(count, message);
}

function keep(count: TrafficCount, line: string): void {
  if (count.failures.length < failuresKept) count.failures.push(line);
}
