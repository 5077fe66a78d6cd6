/**
 * Brings the ends of commands to the activities that wait for them. Rows of the outbox are taken by lease, completed by
 * activity id *and run id* (an id alone would land on the activity of a later run after a reset), and removed.
 *
 * Nobody waits, or waited: dropped. Temporal unreachable: backed off; the row stays. A relay that is killed between the completion and
 * the removal completes twice, which is refused and dropped. So several relays may run, and none of them has to.
 *
 * The database says when there is something to deliver. Where that is heard, the outbox is looked at on such a word, and every few seconds
 * for what became due by time or was not said; where it is not, as behind a pool of transactions, several times a second.
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
  /** What the database says arrives: whoever is told calls `look`. Default: never. */
  readonly isHeard?: () => boolean;
  /** Tells an attempt of this process that its command has ended: it answers itself. */
  readonly wake?: (commandId: string) => boolean;
  readonly log: ServiceLog;
  readonly onCount?: (what: RelayCount, by: number) => void;
  readonly pauses?: RelayPauses;
}

export type RelayCount = 'completed' | 'answered-here' | 'nobody-waits' | 'failed' | 'heartbeats' | 'swept';

export interface Relay {
  /** One round of each; `start` calls them by the clock. */
  deliver(): Promise<number>;
  heartbeat(): Promise<void>;
  sweep(): Promise<void>;
  start(): RunningRelay;
}

export interface RunningRelay {
  /** There may be something to deliver; many such words at once are one look. */
  look(): void;
  stop(): Promise<void>;
}

export interface RelayPauses {
  /** Not heard: what a workflow waits for the end of its command at most, beyond the end itself. */
  readonly unheardMs: number;
  /** Heard: at most, for completions that are tried again and for what nobody said. A half of it is drawn anew each time, so that relays do not fall into step. */
  readonly heardMs: number;
}

const batch = 100;
const ownPauses: RelayPauses = Object.freeze({ unheardMs: 250, heardMs: 6 * second });
/** What is said within this time is one look; a gateway says it up to a hundred times a second. */
const gatherMs = 20;
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

  return { deliver, heartbeat, sweep, start: () => runByClock({ deliver, heartbeat, sweep }, options) };
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
function runByClock(
  jobs: Pick<Relay, 'deliver' | 'heartbeat' | 'sweep'>,
  { log, isHeard = () => false, pauses = ownPauses }: RelayOptions,
): RunningRelay {
  const life = { stopped: false, told: false };
  const sleepers = new Map<() => void, { readonly forWords: boolean }>();
  const pause = (ms: number, forWords = false): Promise<void> =>
    new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        sleepers.delete(done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      sleepers.set(done, { forWords });
    });
  /** @returns what the job says; null when it failed */
  const round = <T>(name: string, job: () => Promise<T>): Promise<T | null> =>
    job().catch((error: unknown) => {
      log.warn({ err: error, job: name }, 'the relay could not do its round; trying again');
      return null;
    });
  const byClock = async (name: string, everyMs: number, job: () => Promise<void>): Promise<void> => {
    while (!life.stopped) {
      await round(name, job);
      if (!life.stopped) await pause(everyMs);
    }
  };
  const deliverAll = async (): Promise<void> => {
    while (!life.stopped) {
      life.told = false;
      const done = await round('deliver', jobs.deliver);
      if (done === batch || life.stopped) continue;
      const isQuick = done === null || !isHeard();
      if (!life.told) await pause(isQuick ? pauses.unheardMs : pauses.heardMs * (0.5 + Math.random() / 2), true);
      if (life.told && !life.stopped) await pause(gatherMs);
    }
  };
  const running = [deliverAll(), byClock('heartbeat', heartbeatEveryMs, jobs.heartbeat), byClock('sweep', minute, jobs.sweep)];
  return {
    look() {
      life.told = true;
      for (const [wake, { forWords }] of sleepers) if (forWords) wake();
    },
    async stop() {
      life.stopped = true;
      for (const wake of sleepers.keys()) wake();
      await Promise.all(running);
    },
  };
}
