/**
 * The activities of runs on machines that need no key: the plan, the batch, what can be observed, what changes in the database, the end.
 * Each may be repeated: what is done stays done, by the run's id.
 */
import { isFinished } from '../domain/commands/states.ts';
import type { ActName } from '../domain/metal/acts.ts';
import { actCommandId, runPrefix } from '../domain/metal/acts.ts';
import type { Remains, RunEnd } from '../domain/metal/run-ends.ts';
import { translated } from './failures.ts';
import { type ObservationName, observations } from './metal-observations.ts';
import type { FinishRunInput, MetalControlPorts, PlannedRun, PlanRunInput, RunMessage, StepRecord } from './metal-ports.ts';
import { currentWait, notYet } from './not-yet.ts';

export type Observed =
  | { readonly kind: 'reached'; readonly detail: string }
  | { readonly kind: 'late'; readonly detail: string }
  | { readonly kind: 'failed'; readonly reason: string; readonly detail: string };

export interface ObserveInput {
  readonly runId: string;
  readonly what: ObservationName;
  /** Latest attempt of each act of the run. */
  readonly sent: Readonly<Partial<Record<ActName, number>>>;
  readonly records: readonly StepRecord[];
  /** From its first look on. */
  readonly patienceMs: number;
}

export type ChangeName = 'end-identity' | 'store-next' | 'adopt' | 'close-boots';

export interface RunBatch {
  readonly batchId: string;
  readonly held: boolean;
  readonly notAfter: number;
}

export interface MetalControlActivities {
  planMachineRun(input: PlanRunInput): Promise<PlannedRun>;
  openRunBatch(input: { runId: string }): Promise<{ readonly batch: RunBatch | null }>;
  observeMachine(input: ObserveInput): Promise<Observed>;
  changeMachine(input: { runId: string; change: ChangeName; records: readonly StepRecord[] }): Promise<{ readonly detail: string }>;
  /** Takes a command back that was not begun; answers how it stands. */
  takeBackAct(input: { runId: string; act: ActName; n: number }): Promise<{ readonly state: string }>;
  recordRunMessage(input: RunMessage): Promise<void>;
  finishMachineRun(
    input: FinishRunInput & { records: readonly StepRecord[] },
  ): Promise<{ end: RunEnd; remains: Remains | null; machineState: string }>;
  /** Where the machines of a fleet stand, for its limits. */
  placeMachines(input: { machineIds: readonly string[] }): Promise<readonly { machineId: string; rack: string; siteId: string }[]>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export function createMetalControlActivities(ports: MetalControlPorts): MetalControlActivities {
  const { runs } = ports;
  const note = async (records: readonly StepRecord[]): Promise<void> => {
    for (const row of records) await runs.record(row);
  };
  return translated<MetalControlActivities>({
    planMachineRun: (input) => runs.plan(input),

    async openRunBatch({ runId }) {
      const batch = await runs.createBatch(runId);
      if (batch?.held === true) await ports.watch(batch.batchId);
      return { batch };
    },

    async observeMachine({ runId, what, sent, records, patienceMs }) {
      await note(records);
      const facts = await runs.read(runId);
      const prefix = runPrefix(facts.run.workflowId, runId);
      const idOf = (act: ActName): string => actCommandId(prefix, act, sent[act] ?? 0);
      const observed = await observations[what](ports, {
        facts,
        idOf,
        answer: async (act) => (sent[act] === undefined ? undefined : ports.answers.find(idOf(act))),
      });
      if (observed.kind !== 'not-yet') return observed;
      const wait = currentWait();
      if (wait.elapsedMs >= patienceMs) return { kind: 'late', detail: observed.detail };
      return notYet({ reason: what, message: observed.detail, ...untilLate(patienceMs - wait.elapsedMs) }, wait);
    },

    async changeMachine({ runId, change, records }) {
      await note(records);
      return changes[change](ports, runId);
    },

    async takeBackAct({ runId, act, n }) {
      const { run } = await runs.read(runId);
      const id = actCommandId(runPrefix(run.workflowId, runId), act, n);
      const before = await ports.answers.find(id);
      if (before === undefined) return { state: 'unsent' };
      if (!isFinished(before.state)) await ports.commands.cancel(id);
      return { state: (await ports.answers.find(id))?.state ?? before.state };
    },

    recordRunMessage: (input) => runs.recordMessage(input),

    async finishMachineRun({ records, ...input }) {
      await note(records);
      return runs.finish(input);
    },

    placeMachines: ({ machineIds }) => runs.places(machineIds),
  });
}

/** Near its end a wait looks when it ends, not some seconds later. */
const untilLate = (leftMs: number): { retryAfterMs?: number } => (leftMs < 5_000 ? { retryAfterMs: leftMs } : {});

const changes: Readonly<Record<ChangeName, (ports: MetalControlPorts, runId: string) => Promise<{ detail: string }>>> = Object.freeze({
  'end-identity': async ({ runs }, runId) => ({ detail: (await runs.endIdentity({ runId, reason: 'retire' })).summary }),
  'store-next': async ({ runs }, runId) => ({
    detail: `the next password is stored as ${(await runs.storeNextCredential(runId)).nextRef}`,
  }),
  adopt: async ({ runs }, runId) => {
    await runs.adoptCredential(runId);
    return { detail: 'the new password is the current one' };
  },
  'close-boots': async ({ runs }, runId) => {
    await runs.closeBoots(runId);
    return { detail: 'no boot entry of the run is open any more' };
  },
});
