/**
 * What stands between the server and the handlers of signals. Whoever may write to the namespace may send ten thousand of them to one run
 * (the server's limit), and they come as one task where no worker ran. Three things followed, each for every workflow of ours:
 *
 * - The SDK makes several promises of a signal and keeps a stack of each. Thousands took longer than the sandbox may run; cut short inside
 *   of a promise hook, Node ends the whole process ("async hook stack has become corrupted").
 * - Those of a good shape each start an activity. With 2,000 pending the server refuses the task, and every repetition of it.
 * - One signal named `__temporal_…` makes the SDK throw where a default handler is set: the task fails for ever.
 *
 * So this takes out of an activation, before the SDK sees them, what no handler would act on, and hears a bounded number of the rest by
 * each name. What is left out changed nothing before either, so a history replays the same; the bound counts over the whole run, in the order
 * of history, so it falls on the same signal however tasks are cut. Where a right word among thousands must not be lost, a listener keeps
 * what is beyond the bound, as plain values without a promise, and answers many of them with one activity.
 */
import type { Payload, SignalDefinition } from '@temporalio/common';
import { log, setCurrentDetails, setHandler, type WorkflowInterceptors, type WorkflowInternalsInterceptor } from '@temporalio/workflow';
import { codeOf } from '../../domain/errors.ts';
import { payloadConverter } from '../tolerant-converter.ts';

/**
 * Signals of one name that a run hears: more than any operator sends (a rotation takes 200 overrides), and with every name of a workflow
 * together far below the 2,000 activities that may be pending.
 */
export const heardPerName = 250;
/** And beyond them keeps, where it keeps any: as many as the server takes for one run, unless somebody raised that. */
const keptPerName = 10_000;
/** Up to this many that are there before the workflow has begun go the way of the SDK, as they always did. */
const fewAtStart = 200;
/** Lines in the log of one run about what was ignored; a flood must not become one of lines. */
const linesPerRun = 20;
const reservedPrefix = '__temporal_';

type Job = NonNullable<Parameters<NonNullable<WorkflowInternalsInterceptor['activate']>>[0]['activation']['jobs']>[number];
type Reader = (value: unknown) => unknown;

// A workflow has its own instance of this module: the SDK keeps modules apart by run.
const readers = new Map<string, Reader>();
const keepers = new Map<string, Reader>();
const heard = new Map<string, number>();
let ignored = 0;
let afterSignals = (): void => {};

export interface Listener<T> {
  readonly signal: { readonly name: string };
  readonly description: string;
  /** @throws ControlError INVALID_INPUT for what is no such message, before it looks at any state; another code for what is refused now */
  readonly read: (value: unknown) => T;
  readonly take: (message: T) => unknown;
  /** Gets at once, in the order in which they came, those beyond `heardPerName`; without it they are ignored. */
  readonly keep?: (message: T) => void;
}

/** Handles a signal. It never throws: a failure in a handler would end the workflow. */
export function listen<T>({ signal, description, read, take, keep }: Listener<T>): void {
  const { name } = signal;
  readers.set(name, read);
  if (keep !== undefined) keepers.set(name, (value) => keep(read(value)));
  const handle = async (value: unknown): Promise<void> => {
    try {
      await take(read(value));
    } catch (error) {
      say(name, error instanceof Error ? error.message : 'not an error');
    }
  };
  setHandler(signal as SignalDefinition<[unknown]>, handle, { description });
}

/** Called after each task that brought signals, whether or not any was heard. */
export function onSignals(call: () => void): void {
  afterSignals = call;
}

/** Of some name more came than one run hears. */
export const isFlooded = (): boolean => [...heard.values()].some((count) => count > heardPerName);

const deafTo = (): string[] => [...heard].filter(([name, count]) => count > boundOf(name)).map(([name]) => name);

const boundOf = (name: string): number => heardPerName + (keepers.has(name) ? keptPerName : 0);

/** Shows the current details, and below them what was ignored. Costs no event: the text is read by the metadata query. */
export function showDetails(text: string): void {
  setCurrentDetails([text, ...describeIgnored()].join('\n'));
}

function describeIgnored(): string[] {
  const deaf = deafTo();
  if (deaf.length > 0) {
    const names = deaf.map((name) => `\`${name}\``).join(', ');
    return [
      `- **${ignored} signals ignored**: of ${names} more than ${heardPerName} came, no more is heard in this run. Send the update instead, or end the run and start it again`,
    ];
  }
  return ignored === 0 ? [] : [`- ${ignored} signals ignored: of no name, or no shape, that this workflow knows`];
}

/** Found by the bundler under this name (workers/bundle.ts). */
export const interceptors = (): WorkflowInterceptors => ({
  internals: [
    {
      activate: (input, next) => {
        const jobs = input.activation.jobs ?? [];
        const run = (some: Job[]): void => next({ ...input, activation: { ...input.activation, jobs: some } });
        const signals = jobs.filter(isSignal).length;
        if (signals === 0) return next(input);
        // Before it has begun nobody has said what it listens to: a flood is held back until then.
        const held = signals > fewAtStart && jobs.some(({ initializeWorkflow }) => initializeWorkflow) ? jobs.filter(isSignal) : [];
        run(jobs.filter((job) => !isSignal(job) || (held.length === 0 && isAdmitted(job))));
        if (held.length > 0) run(held.filter(isAdmitted));
        afterSignals();
      },
    },
  ],
});

const isSignal = ({ signalWorkflow }: Job): boolean => signalWorkflow !== null && signalWorkflow !== undefined;

function isAdmitted({ signalWorkflow }: Job): boolean {
  const name = signalWorkflow?.signalName ?? '';
  if (name.startsWith(reservedPrefix)) return ignore(name, 'the name is reserved');
  // A workflow that listens to none, or has not said so yet: the SDK keeps what comes, and makes nothing of it.
  if (readers.size === 0) return true;
  const read = readers.get(name);
  if (read === undefined) return ignore(name, 'the name is not known');
  const payload = signalWorkflow?.input?.[0];
  const why = whyUnreadable(read, payload);
  if (why !== null) return ignore(name, why);
  const count = (heard.get(name) ?? 0) + 1;
  heard.set(name, count);
  if (count <= heardPerName) return true;
  if (count > boundOf(name)) return ignore(name, `${boundOf(name)} of this name were heard`);
  return keepOne(name, payload);
}

/** Never the SDK's: it is kept, or what the listener refuses now is ignored. */
function keepOne(name: string, payload: Payload | undefined): false {
  try {
    keepers.get(name)?.(valueOf(payload));
    return false;
  } catch (error) {
    return ignore(name, error instanceof Error ? error.message : 'not an error');
  }
}

const valueOf = (payload: Payload | undefined): unknown => (payload === undefined ? undefined : payloadConverter.fromPayload(payload));

/** A refusal that looks at the state is the handler's: by then another signal of the same task may have changed it. */
function whyUnreadable(read: Reader, payload: Payload | undefined): string | null {
  try {
    read(valueOf(payload));
    return null;
  } catch (error) {
    return codeOf(error) === 'INVALID_INPUT' ? (error as Error).message : null;
  }
}

function ignore(name: string, why: string): false {
  ignored += 1;
  if (ignored <= linesPerRun) say(name, why);
  return false;
}

const say = (signal: string, why: string): void => log.warn('ignored a signal', { signal: signal.slice(0, 100), why: why.slice(0, 500) });
