/**
 * Work that goes on whatever happens: each turn restarts one unit of its own on every machine, so that an effect that happened
 * twice, or none, can be told from its unit alone. Calls are repeated until they are answered, as a patient operator would.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, WorkflowExecutionAlreadyStartedError, WorkflowFailedError } from '@temporalio/client';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import type { RunCommandInput, RunCommandResult } from '../../workflows/run-command/messages.ts';

export interface WorkDone {
  readonly unit: string;
  /** null: the workflow itself failed. */
  readonly result: RunCommandResult | null;
  readonly failure: string;
}

export interface SteadyWork {
  /** Turns that have ended so far. */
  done(): readonly WorkDone[];
  /** No new turns; resolves when every one has ended. */
  finish(): Promise<readonly WorkDone[]>;
  /** No new turns, and what is under way is let go of: for the end of a test, before its connection closes. */
  stop(): Promise<void>;
}

export function startSteadyWork(
  client: Client,
  { nodes, everyMs = 2_000 }: { nodes: readonly string[] | 'all'; everyMs?: number },
): SteadyWork {
  const done: WorkDone[] = [];
  const open = new Set<Promise<void>>();
  const given = new AbortController();
  // As many calls hang on it as turns are under way.
  setMaxListeners(0, given.signal);
  let turns = 0;
  const turn = (): void => {
    turns += 1;
    const unit = `work-${turns}.service`;
    const one: Promise<void> = client.connection
      .withAbortSignal(given.signal, () => restartEverywhere(client, { unit, nodes, signal: given.signal }))
      .then((end) => void done.push(end))
      .catch((error: unknown) => {
        if (!given.signal.aborted) throw error;
      })
      .finally(() => open.delete(one));
    open.add(one);
  };
  turn();
  const timer = setInterval(turn, everyMs);
  return {
    done: () => done,
    async finish() {
      clearInterval(timer);
      await Promise.all(open);
      return done;
    },
    async stop() {
      clearInterval(timer);
      given.abort();
      await Promise.all(open);
    },
  };
}

interface Turn {
  readonly unit: string;
  readonly nodes: readonly string[] | 'all';
  readonly signal: AbortSignal;
}

async function restartEverywhere(client: Client, { unit, nodes, signal }: Turn): Promise<WorkDone> {
  const input: RunCommandInput = { kind: 'service.restart', nodes, payload: { unit }, actor: 'test' };
  const workflowId = workflowIds.runCommand(`steady-${unit}`);
  await patiently(signal, async () => {
    try {
      await client.workflow.start('runCommand', {
        workflowId,
        taskQueue: taskQueues.control,
        args: [input],
        workflowIdReusePolicy: 'REJECT_DUPLICATE',
      });
    } catch (error) {
      // The answer to the first call was lost.
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    }
  });
  return patiently(signal, async () => {
    try {
      return { unit, result: (await client.workflow.getHandle(workflowId).result()) as RunCommandResult, failure: '' };
    } catch (error) {
      if (!(error instanceof WorkflowFailedError)) throw error;
      return { unit, result: null, failure: `${error.message}: ${rootOf(error).message}` };
    }
  });
}

const rootOf = (error: Error): Error => (error.cause instanceof Error ? rootOf(error.cause) : error);

async function patiently<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  for (;;) {
    signal.throwIfAborted();
    try {
      return await call();
    } catch {
      await sleep(200);
    }
  }
}

/** States of commands over all turns, such as { done: 60 }. */
export function tally(work: readonly WorkDone[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { result } of work) {
    const states = result === null ? { 'no result': 1 } : result.states;
    for (const [state, count] of Object.entries(states)) if (count > 0) counts[state] = (counts[state] ?? 0) + count;
  }
  return counts;
}

export const failuresOf = (work: readonly WorkDone[]): string[] =>
  work.flatMap(({ unit, result, failure }) =>
    result === null ? [`${unit}: ${failure}`] : result.failures.map((one) => `${unit} on ${one.nodeId}: ${one.state} ${one.error}`),
  );
