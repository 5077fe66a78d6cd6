/**
 * Brings the ends of commands to the activities that wait for them. Rows of the outbox are taken by lease, completed by
 * activity id *and run id* (an id alone would land on the activity of a later run after a reset), and removed.
 *
 * Nobody waits, or waited: dropped. Temporal unreachable: backed off; the row stays. A relay that is killed between the completion and
 * the removal completes twice, which is refused and dropped. So several relays may run, and none of them has to.
 *
 * The relay also heartbeats for the nodes that are connected, so that the server knows the wait is alive and a cancel
 * arrives; a wait that is not heartbeated is retried, reads the table and waits on. Once a minute a sweep queues what was lost.
 */
import { ActivityCancelledError, ActivityNotFoundError, type AsyncCompletionClient, WorkflowNotFoundError } from '@temporalio/client';
import type { CommandView } from '../activities/command-ports.ts';
import { type CommandEndReport, endOf } from '../activities/commands-control.ts';
import { minute, second } from '../domain/time.ts';
import type { ServiceLog } from '../services/log.ts';
import type { ActivityIds, CommandWait, DueCompletion, OpenWait } from '../services/outbox.ts';

export interface OutboxPort {
  take(limit: number): Promise<readonly DueCompletion[]>;
  finish(commandIds: readonly string[]): Promise<void>;
  backOff(completion: DueCompletion): Promise<void>;
  openWaits(page: { afterId: string; limit: number }): Promise<readonly OpenWait[]>;
  sweep(): Promise<number>;
  find(commandId: string): Promise<CommandView | undefined>;
}

export interface RelayOptions {
  readonly outbox: OutboxPort;
  readonly completions: Pick<AsyncCompletionClient, 'complete' | 'heartbeat' | 'reportCancellation'>;
  /** Tells an attempt of this process that its command has ended: it answers itself. */
  readonly wake?: (commandId: string) => boolean;
  readonly log: ServiceLog;
  readonly onCount?: (what: RelayCount, by: number) => void;
}

export type RelayCount = 'completed' | 'answered-here' | 'nobody-waits' | 'failed' | 'heartbeats' | 'swept';

export interface Relay {
  /** One round of each; `start` calls them by the clock. */
  deliver(): Promise<number>;
  heartbeat(): Promise<void>;
  sweep(): Promise<void>;
  start(): { stop(): Promise<void> };
}

const batch = 100;
const deliverEveryMs = 250;
/** Two of them may be lost before the minute that a wait has is over; each is a call for every command under way. */
const heartbeatEveryMs = 20 * second;

export function createRelay(options: RelayOptions): Relay {
  const { outbox, log } = options;
  const count = (what: RelayCount, by = 1): void => options.onCount?.(what, by);

  const deliver = async (): Promise<number> => {
    const due = await outbox.take(batch);
    const outcomes = await Promise.all(due.map((completion) => deliverOne(options, completion)));
    const finished = due.filter((_, at) => outcomes[at] !== 'failed');
    await outbox.finish(finished.map((completion) => completion.commandId));
    for (const outcome of outcomes) count(outcome);
    return due.length;
  };

  const heartbeat = async (): Promise<void> => {
    let afterId = '';
    for (;;) {
      const waits = await outbox.openWaits({ afterId, limit: batch });
      const live = waits.filter((wait) => wait.connected);
      await Promise.all(live.map((wait) => heartbeatOne(options, wait)));
      count('heartbeats', live.length);
      const last = waits.at(-1);
      if (last === undefined || waits.length < batch) return;
      afterId = last.commandId;
    }
  };

  const sweep = async (): Promise<void> => {
    const found = await outbox.sweep();
    if (found === 0) return;
    count('swept', found);
    log.warn({ found }, 'completions were lost and are queued again');
  };

  return { deliver, heartbeat, sweep, start: () => runByClock({ deliver, heartbeat, sweep }, log) };
}

async function deliverOne({ outbox, completions, wake, log }: RelayOptions, completion: DueCompletion): Promise<RelayCount> {
  try {
    const view = await outbox.find(completion.commandId);
    if (view === undefined) return 'nobody-waits';
    if (wake?.(completion.commandId)) return 'answered-here';
    await completions.complete(idsOf(completion), endOf(view) satisfies CommandEndReport);
    return 'completed';
  } catch (error) {
    if (isNobody(error)) return 'nobody-waits';
    log.warn(
      { err: error, commandId: completion.commandId, workflowId: completion.workflowId },
      'a completion did not reach Temporal; trying again',
    );
    await outbox.backOff(completion);
    return 'failed';
  }
}

async function heartbeatOne({ completions, log }: RelayOptions, wait: CommandWait): Promise<void> {
  try {
    await completions.heartbeat(idsOf(wait));
  } catch (error) {
    if (error instanceof ActivityCancelledError) return confirmCancel({ completions, log }, wait);
    // Between attempts there is nothing to heartbeat.
    if (!isNobody(error))
      log.warn({ err: error, commandId: wait.commandId, workflowId: wait.workflowId }, 'a heartbeat did not reach Temporal');
  }
}

async function confirmCancel({ completions, log }: Pick<RelayOptions, 'completions' | 'log'>, wait: CommandWait): Promise<void> {
  await completions.reportCancellation(idsOf(wait)).catch((error: unknown) => {
    log.info({ err: error, commandId: wait.commandId }, 'the cancelled wait had ended');
  });
}

const idsOf = ({ workflowId, runId, activityId }: ActivityIds): ActivityIds => ({ workflowId, runId, activityId });

const isNobody = (error: unknown): boolean => error instanceof ActivityNotFoundError || error instanceof WorkflowNotFoundError;

/** Each job by itself, never two of one kind at once; a full batch is followed by the next one without a pause. */
function runByClock(jobs: Pick<Relay, 'deliver' | 'heartbeat' | 'sweep'>, log: ServiceLog): { stop(): Promise<void> } {
  const life = { stopped: false };
  const sleepers = new Set<() => void>();
  const pause = (ms: number): Promise<void> =>
    new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        sleepers.delete(done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      sleepers.add(done);
    });
  const loop = async (name: string, everyMs: number, job: () => Promise<number | void>): Promise<void> => {
    while (!life.stopped) {
      const done = await job().catch((error: unknown) => {
        log.warn({ err: error, job: name }, 'the relay could not do its round; trying again');
        return 0;
      });
      if (done !== batch && !life.stopped) await pause(everyMs);
    }
  };
  const running = [
    loop('deliver', deliverEveryMs, jobs.deliver),
    loop('heartbeat', heartbeatEveryMs, jobs.heartbeat),
    loop('sweep', minute, jobs.sweep),
  ];
  return {
    async stop() {
      life.stopped = true;
      for (const wake of sleepers) wake();
      await Promise.all(running);
    },
  };
}
