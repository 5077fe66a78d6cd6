/**
 * The activities of runs on machines that need no key: the plan, the batch, what can be observed, what changes in the database, the end.
 * Each may be repeated: what is done stays done, by the run's id.
 */
import type { ActName } from '../domain/metal/acts.ts';
import { actCommandId, runPrefix } from '../domain/metal/acts.ts';
import type { Remains, RunEnd } from '../domain/metal/run-ends.ts';
import { second } from '../domain/time.ts';
import { translated } from './failures.ts';
import { type ObservationName, observations } from './metal-observations.ts';
import type { FinishRunInput, HeardRun, MetalControlPorts, PlannedRun, PlanRunInput, RunMessage, StepRecord } from './metal-ports.ts';
import type { Looking, Seen } from './metal-seen.ts';
import { currentWait, nextDelayMs, notYet } from './not-yet.ts';

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
  /** Of the profile's own step that is looked at; absent for the run's own. */
  readonly ordinal?: number;
}

export type ChangeName = 'end-identity' | 'close-boots';

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
    await runs.record(records);
  };
  return translated<MetalControlActivities>({
    planMachineRun: (input) => runs.plan(input),

    async openRunBatch({ runId }) {
      const batch = await runs.createBatch(runId);
      if (batch?.held === true) await ports.watch(batch.batchId);
      return { batch };
    },

    observeMachine: (input) => observe(ports, observations[input.what], input),

    async changeMachine({ runId, change, records }) {
      await note(records);
      return changes[change](ports, runId);
    },

    async takeBackAct({ runId, act, n }) {
      const { run } = await runs.read(runId);
      const id = actCommandId(runPrefix(run.workflowId, runId), act, n);
      const before = await ports.answers.find(id);
      if (before === undefined) return { state: 'unsent' };
      // One that was taken is under way: the machine may have had its effect already.
      if (before.state === 'open') await ports.commands.cancel(id);
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

/** How long a look holds the worker for the next word about its run; below what an attempt may take (workflows/shared/activity-options.ts). */
const waitInsideMs = 12 * second;

/** What a session of the machine, or a failed command of its own, decides: words tell of both. */
const spokenOf: ReadonlySet<string> = new Set<ObservationName>(['ramdisk-joined', 'system-joined']);

type ObservePorts = Pick<MetalControlPorts, 'runs' | 'answers' | 'now'> & Partial<Pick<MetalControlPorts, 'words'>>;
type Look<P> = (ports: P, looking: Looking) => Promise<Seen>;

/** A wait that has no history; the observation of a proof is the same, where the keys are. */
export async function observe<P extends ObservePorts>(
  ports: P,
  look: Look<P>,
  input: Omit<ObserveInput, 'what'> & { readonly what: string },
): Promise<Observed> {
  await ports.runs.record(input.records);
  // Before the first look: what happens behind it is heard.
  const heard = spokenOf.has(input.what) ? (ports.words?.listen(input.runId) ?? null) : null;
  try {
    return await untilSeen({ see: () => lookOnce(ports, look, input), heard, now: ports.now, input });
  } finally {
    heard?.end();
  }
}

interface Observing {
  readonly see: () => Promise<Seen>;
  readonly heard: HeardRun | null;
  readonly now: () => number;
  readonly input: { readonly what: string; readonly patienceMs: number };
}

/** Looks, and looks again at each word; what nobody speaks of is looked at by the clock, in the next attempt. */
async function untilSeen({ see, heard, now, input: { what, patienceMs } }: Observing): Promise<Observed> {
  const begunAt = now();
  for (;;) {
    const seen = await see();
    if (seen.kind !== 'not-yet') return seen;
    const insideMs = Math.max(0, now() - begunAt);
    const wait = { elapsedMs: currentWait().elapsedMs + insideMs };
    // Near its end a wait looks when it ends, not some seconds later.
    const leftMs = patienceMs - wait.elapsedMs;
    if (leftMs <= 0) return { kind: 'late', detail: seen.detail };
    const mayWaitMs = Math.min(leftMs, waitInsideMs - insideMs);
    if (heard !== null && mayWaitMs > 0 && ((await heard.next(mayWaitMs)) || mayWaitMs === leftMs)) continue;
    const delayMs = heard === null ? nextDelayMs(wait) : second;
    notYet({ reason: what, message: seen.detail, retryAfterMs: Math.min(leftMs, delayMs) }, wait);
  }
}

async function lookOnce<P extends ObservePorts>(
  ports: P,
  look: Look<P>,
  { runId, sent, ordinal = 0 }: Pick<ObserveInput, 'runId' | 'sent' | 'ordinal'>,
): Promise<Seen> {
  const facts = await ports.runs.read(runId);
  const prefix = runPrefix(facts.run.workflowId, runId);
  const idOf = (act: ActName): string => actCommandId(prefix, act, sent[act] ?? 0);
  const answer: Looking['answer'] = async (act) => (sent[act] === undefined ? undefined : ports.answers.find(idOf(act)));
  return look(ports, { facts, idOf, answer, ordinal });
}

const changes: Readonly<Record<ChangeName, (ports: MetalControlPorts, runId: string) => Promise<{ detail: string }>>> = Object.freeze({
  'end-identity': async ({ runs }, runId) => ({ detail: (await runs.endIdentity({ runId, reason: 'retire' })).summary }),
  'close-boots': async ({ runs }, runId) => {
    await runs.closeBoots(runId);
    return { detail: 'no boot entry of the run is open any more' };
  },
});
