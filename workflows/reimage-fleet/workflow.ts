/**
 * Reimages many machines: a window of provision runs that slides over them. A machine is begun when the whole, its site and its rack have room
 * for it; too many failures, and none is begun any more. What runs is never cut by a rule: it ends by itself, or by a word of its own.
 *
 * Before its history grows long it lets the window run empty and goes on as a new run with what is left. PINNED.
 */
import { ChildWorkflowFailure, type UpdateDefinition, WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  allHandlersFinished,
  condition,
  continueAsNew,
  getExternalWorkflowHandle,
  log,
  ParentClosePolicy,
  proxyActivities,
  setHandler,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import type { MetalControlActivities } from '../../activities/metal-control.ts';
import { ControlError } from '../../domain/errors.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { staticSummary as provisionSummary } from '../provision-machine/messages.ts';
import { onControl } from '../shared/activity-options.ts';
import { showPhase } from '../shared/attributes.ts';
import { refusing } from '../shared/failures.ts';
import { listen, onSignals, showDetails } from '../shared/inbox.ts';
import { cancelSignal } from '../shared/machine-messages.ts';
import { isRecord, type Signed } from '../shared/shape.ts';
import { versioned } from '../shared/versioning.ts';
import * as messages from './messages.ts';
import { FleetRun, type Place } from './state.ts';

const { placeMachines } = proxyActivities<MetalControlActivities>(onControl);
const placesAPage = 500;

export async function reimageFleet(input: messages.ReimageFleetInput): Promise<messages.FleetResult> {
  const parsed = refusing(() => assertOwnId(messages.parseReimageFleet(input)));
  const fleet = new FleetRun(parsed, Date.now());
  installHandlers(fleet);
  show(fleet, 'planning');
  await place(fleet);
  show(fleet, 'rolling');
  await roll(fleet);
  show(fleet, 'draining');
  await condition(() => fleet.inWork.size === 0 || fleet.givenUp);
  await condition(allHandlersFinished);
  if (mustGoOn(fleet)) {
    const { run, profile, limits, stop, actor, reason } = parsed;
    await continueAsNew<typeof reimageFleet>({
      run,
      machines: fleet.waiting,
      profile,
      limits,
      stop,
      actor,
      reason,
      carried: fleet.carry(),
    });
  }
  show(fleet, 'done');
  return fleet.result();
}
versioned('PINNED', reimageFleet);

function assertOwnId(input: messages.ParsedReimageFleet): messages.ParsedReimageFleet {
  const { workflowId } = workflowInfo();
  const expected = workflowIds.reimageFleet(input.run);
  if (workflowId === expected) return input;
  throw new ControlError('INVALID_INPUT', `reimage ${input.run} runs under the workflow id ${expected} only, not ${workflowId}`);
}

/** It is asked for, and answered, in pages: a fleet is no payload. */
async function place(fleet: FleetRun): Promise<void> {
  for (let at = 0; at < fleet.waiting.length; at += placesAPage) {
    const machineIds = fleet.waiting.slice(at, at + placesAPage);
    const places: unknown = await placeMachines.executeWithOptions({ summary: `where ${machineIds.length} machines stand` }, [
      { machineIds },
    ]);
    for (const one of Array.isArray(places) ? (places as unknown[]) : []) if (isPlace(one)) fleet.places.set(one.machineId, one);
  }
}

const isPlace = (value: unknown): value is Place =>
  isRecord(value) && ['machineId', 'rack', 'siteId'].every((name) => typeof value[name] === 'string');

const isLong = (): boolean => workflowInfo().continueAsNewSuggested;

const mustGoOn = (fleet: FleetRun): boolean =>
  fleet.waiting.length > 0 && fleet.stopping === null && !fleet.givenUp && (isLong() || fleet.stopped === '');

/** Until none is left to begin, or none may be, or the history is long. A stop rule holds here: it may be lifted. */
async function roll(fleet: FleetRun): Promise<void> {
  const over = (): boolean => fleet.waiting.length === 0 || fleet.stopping !== null || fleet.givenUp || isLong();
  for (;;) {
    await condition(() => fleet.next() !== undefined || over() || isStoppedForGood(fleet));
    if (over() || isStoppedForGood(fleet)) return;
    const machineId = fleet.next();
    if (machineId === undefined) continue;
    fleet.begin(machineId);
    await begin(fleet, machineId);
    show(fleet, fleet.paused === null ? 'rolling' : 'paused');
  }
}

/** Nothing is in work that could change the count; the rule has the last word. */
const isStoppedForGood = (fleet: FleetRun): boolean => fleet.stopped !== '' && fleet.inWork.size === 0;

async function begin(fleet: FleetRun, machineId: string): Promise<void> {
  const { profile, actor, reason, run } = fleet.input;
  try {
    const child = await startChild('provisionMachine', {
      workflowId: workflowIds.machineRun(machineId, 'provision'),
      taskQueue: taskQueues.control,
      args: [{ machineId, profile, actor, reason: `${reason} (reimage ${run})` }],
      // A fleet that is terminated leaves every machine to its own run.
      parentClosePolicy: ParentClosePolicy.ABANDON,
      staticSummary: provisionSummary,
    });
    void child.result().then(
      (result: unknown) => ended(fleet, machineId, readEnd(result)),
      (error: unknown) => ended(fleet, machineId, endOfFailure(error)),
    );
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    ended(fleet, machineId, { end: 'failed', remains: null, failure: 'already-running' });
  }
}

type End = Omit<messages.FleetMachineEnd, 'machineId'>;

function ended(fleet: FleetRun, machineId: string, end: End): void {
  fleet.ended({ machineId, ...end });
  showDetails(fleet.describe());
}

function readEnd(value: unknown): End {
  const { end, remains, failure } = isRecord(value) ? value : {};
  return {
    end: typeof end === 'string' ? end : 'failed',
    remains: typeof remains === 'string' ? remains : null,
    failure: typeof failure === 'string' ? failure.slice(0, 60) : '',
  };
}

function endOfFailure(error: unknown): End {
  const cause = error instanceof ChildWorkflowFailure ? error.cause : error;
  return { end: 'failed', remains: null, failure: cause instanceof Error ? cause.message.slice(0, 200) : 'failed' };
}

function show(fleet: FleetRun, phase: messages.FleetPhase): void {
  const changed = fleet.phase !== phase;
  fleet.phase = phase;
  if (changed) showPhase({ phase, waitingOn: phase === 'done' ? [] : ['machines'], behind: fleet.waiting.length + fleet.inWork.size });
  showDetails(fleet.describe());
}

function installHandlers(fleet: FleetRun): void {
  setHandler(messages.status, () => fleet.status(), { description: 'Counts, who is in work, what stops it' });
  const answer = <T extends Signed>(
    update: { readonly name: string },
    read: (value: unknown) => T,
    apply: (message: T) => Promise<void> | void,
  ): void =>
    setHandler(
      update as UpdateDefinition<messages.FleetStatus, [unknown]>,
      async (value) => {
        await apply(read(value));
        showDetails(fleet.describe());
        return fleet.status();
      },
      {
        validator: (value) => {
          refusing(() => read(value));
        },
      },
    );
  answer(messages.cancel, messages.parseCancelFleet, async (message) => {
    fleet.stopping ??= message;
    if (message.running) await cancelRunning(fleet, message);
  });
  answer(
    messages.giveUp,
    (value) => messages.parseFleetWords('giveUp', value),
    (message) => {
      fleet.stopping ??= { ...message, running: false };
      fleet.givenUp = true;
    },
  );
  answer(
    messages.override,
    (value) => messages.parseFleetWords('override', value),
    () => {
      fleet.forgiven = fleet.failed;
    },
  );
  listen({
    signal: messages.pause,
    description: 'Begin no further machine {actor, reason}',
    read: (value) => messages.parseFleetWords('pause', value),
    take: (message) => {
      fleet.paused = { ...message, since: Date.now() };
    },
  });
  listen({
    signal: messages.resume,
    description: 'Begin machines again after a pause',
    read: () => undefined,
    take: () => {
      fleet.paused = null;
    },
  });
  onSignals(() => showDetails(fleet.describe()));
}

async function cancelRunning(fleet: FleetRun, { actor, reason }: Signed): Promise<void> {
  const running = Array.from(fleet.inWork.keys());
  for (const machineId of running) {
    const run = getExternalWorkflowHandle(workflowIds.machineRun(machineId, 'provision'));
    // One that has just ended is no longer there to hear it.
    await run
      .signal(cancelSignal, { actor, reason })
      .catch((error: unknown) => log.info('a run was over before it was cancelled', { machineId, error: String(error) }));
  }
}
