/**
 * The command activities that need no key: wait for ends, cancel, reconcile.
 *
 * `awaitCommand` is completed from outside, by id, and by nobody's word: whoever completes it only wakes the workflow with what the
 * table says, and its own first line is to read the table. A lost completion therefore costs one attempt, nothing else.
 */
import { activityInfo, CompleteAsyncError } from '@temporalio/activity';
import { isFinished } from '../domain/commands/states.ts';
import { ControlError } from '../domain/errors.ts';
import type { CommandControlPorts, CommandView } from './command-ports.ts';
import { translated } from './failures.ts';
import { currentWait, notYet } from './not-yet.ts';

/** How the workflow hears of one command. */
export interface CommandEndReport {
  readonly state: CommandView['state'];
  readonly error: string;
}

export interface CommandsReport {
  readonly total: number;
  readonly states: Readonly<Record<string, number>>;
  readonly failures: readonly { nodeId: string; commandId: string; state: string; error: string }[];
}

export interface Selection {
  readonly commandPrefix: string;
  readonly nodes: readonly string[] | 'all';
}

export interface CommandControlActivities {
  awaitCommand(input: { commandId: string }): Promise<CommandEndReport>;
  awaitCommands(input: Selection): Promise<CommandsReport>;
  cancelCommands(input: Selection): Promise<{ cancelled: number }>;
  reconcile(): Promise<{ expired: number; completionsQueued: number; pruned: number }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

/** Commands that end quickly answer in the attempt itself; a longer wait holds no worker. */
const waitInsideMs = 3_000;
const failuresKept = 20;
const errorKept = 300;
const cancelPage = 500;

export function createCommandControlActivities(ports: CommandControlPorts): CommandControlActivities {
  const { commands } = ports;
  return translated<CommandControlActivities>({
    async awaitCommand({ commandId }) {
      const { workflowExecution, activityId } = activityInfo();
      const { workflowId, runId } = workflowExecution ?? { workflowId: '', runId: '' };
      const wait = await commands.registerWait({ commandId, workflowId, runId, activityId });
      if (wait === 'unknown')
        throw new ControlError('NOT_FOUND', `no command ${commandId} is known`, { details: { reason: 'unknown-command' } });
      if (wait === 'waiting') await ports.nextEnd(commandId, waitInsideMs);
      const view = await commands.find(commandId);
      if (view !== undefined && isFinished(view.state)) return endOf(view);
      throw new CompleteAsyncError();
    },

    async awaitCommands({ commandPrefix }) {
      const counts = await commands.count(commandPrefix);
      if (counts.open > 0) {
        const behind = (await commands.openOf(commandPrefix, failuresKept)).map((view) => view.nodeId);
        notYet(
          {
            reason: 'commands-open',
            message: `${counts.open} of ${counts.total} command(s) have not ended (${behind.slice(0, 5).join(', ')})`,
            behind,
          },
          currentWait(),
        );
      }
      const failed = await commands.failures(commandPrefix, failuresKept);
      return { total: counts.total, states: counts.states, failures: failed.map(failureOf) };
    },

    async cancelCommands({ commandPrefix }) {
      let cancelled = 0;
      for (;;) {
        const page = await commands.openOf(commandPrefix, cancelPage);
        if (page.length === 0) return { cancelled };
        for (const view of page) await commands.cancel(view.id);
        cancelled += page.length;
      }
    },

    async reconcile() {
      const [expired, completionsQueued] = [await commands.expire(), await commands.queueLostCompletions()];
      return { expired, completionsQueued, pruned: await commands.prune() };
    },
  });
}

/** What the relay completes an activity with, and what the activity itself answers. */
export const endOf = (view: CommandView): CommandEndReport => ({ state: view.state, error: view.error.slice(0, errorKept) });

const failureOf = (view: CommandView): CommandsReport['failures'][number] => ({
  nodeId: view.nodeId,
  commandId: view.id,
  state: view.state,
  error: view.error.slice(0, errorKept),
});
