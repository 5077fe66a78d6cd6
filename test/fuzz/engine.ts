/**
 * The loop: an input of the corpus is changed, the decoder runs, its answer is judged; what reached a part of the code that no input
 * reached before joins the corpus.
 *
 * Rules for every decoder and every input within its bound: it answers or throws a typed error (and INTERNAL is none: it says that
 * the fault is ours), within 50 ms of this thread's processor, without holding on to 64 MiB. An input that seems slow or large is run
 * again, because a collection of garbage falls on somebody: only what is so each time counts.
 */
import { isControlError } from '../../domain/errors.ts';
import { ProtocolError } from '../../proto/index.ts';
import type { Coverage } from './coverage.ts';
import type { Mutator } from './mutate-bytes.ts';
import { createRandom, type Random } from './random.ts';
import { spentMs } from './thread-time.ts';

export interface Target {
  readonly name: string;
  /** Longest input that is handed over: the decoder's own bound, or a little more. */
  readonly maxBytes: number;
  readonly seeds: readonly Uint8Array[];
  readonly mutators: readonly Mutator[];
  /** Decodes. Whatever it answers is right; whatever it throws must be typed. */
  readonly run: (input: Uint8Array) => unknown;
}

export interface Fault {
  readonly target: string;
  readonly kind: 'untyped' | 'internal' | 'slow' | 'memory' | 'hang' | 'crash';
  readonly what: string;
  readonly input: Uint8Array;
}

export interface Figures {
  readonly target: string;
  readonly runs: number;
  readonly accepted: number;
  readonly corpus: number;
  /** Parts of our code that were reached; null without coverage. */
  readonly parts: number | null;
  readonly faults: readonly Fault[];
}

export const limits = Object.freeze({ ms: 50, bytes: 64 * 1024 * 1024 });

const repeats = 4;

/** What an input is found guilty of; null when it behaves. */
export function judge(target: Target, input: Uint8Array): { fault: Fault | null; accepted: boolean } {
  const first = observe(target, input);
  const fault = (kind: Fault['kind'], what: string) => ({
    fault: { target: target.name, kind, what, input: new Uint8Array(input) },
    accepted: false,
  });
  if (first.error !== null) {
    if (isControlError(first.error) && first.error.code === 'INTERNAL') return fault('internal', first.error.message);
    if (!isControlError(first.error) && !(first.error instanceof ProtocolError)) return fault('untyped', describe(first.error));
  }
  const accepted = first.error === null;
  if (first.ms <= limits.ms && first.bytes <= limits.bytes) return { fault: null, accepted };
  const again = Array.from({ length: repeats }, () => observe(target, input));
  const ms = Math.min(first.ms, ...again.map((one) => one.ms));
  if (ms > limits.ms) return fault('slow', `${ms.toFixed(0)} ms for ${input.length} bytes`);
  const bytes = Math.min(first.bytes, ...again.map((one) => one.bytes));
  if (bytes > limits.bytes) return fault('memory', `${Math.round(bytes / 2 ** 20)} MiB for ${input.length} bytes`);
  return { fault: null, accepted };
}

interface Observation {
  readonly error: unknown;
  readonly ms: number;
  readonly bytes: number;
}

function observe({ run }: Target, input: Uint8Array): Observation {
  // Its own copy: a decoder that writes into what it was given would change the corpus.
  const handed = new Uint8Array(input);
  const before = heldBytes();
  const startedAt = spentMs();
  let error: unknown = null;
  try {
    run(handed);
  } catch (thrown) {
    error = thrown ?? new Error('nothing was thrown');
  }
  return { error, ms: spentMs() - startedAt, bytes: heldBytes() - before };
}

const heldBytes = (): number => {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};

const describe = (error: unknown): string =>
  error instanceof Error ? `${error.name}: ${error.message}\n${error.stack ?? ''}`.slice(0, 1_200) : String(error);

export interface FuzzOptions {
  readonly seed: number;
  /** Null: without guidance. */
  readonly coverage: Coverage | null;
  /** Asked before every batch. */
  readonly goesOn: (runs: number) => boolean;
  /** Told of every input before it runs: a hang or a crash leaves no other trace. */
  readonly onInput?: (input: Uint8Array) => void;
}

const batch = 64;
const largestCorpus = 4_000;
const largestKept = 64 * 1024;
/** Of one kind on one target: the first few tell everything. */
const mostFaults = 5;

export function fuzz(target: Target, { seed, coverage, goesOn, onInput }: FuzzOptions): Figures {
  const random = createRandom(seed);
  const corpus: Uint8Array[] = [...target.seeds];
  const faults: Fault[] = [];
  const count = { runs: 0, accepted: 0 };
  const runOne = (input: Uint8Array): void => {
    onInput?.(input);
    const { fault, accepted } = judge(target, input);
    count.runs += 1;
    if (accepted) count.accepted += 1;
    if (
      fault !== null &&
      faults.length < mostFaults &&
      !faults.some(({ kind, what }) => kind === fault.kind && firstLine(what) === firstLine(fault.what))
    )
      faults.push(fault);
  };
  const before = coverage?.size ?? 0;
  for (const one of corpus) runOne(one);
  coverage?.count();
  while (goesOn(count.runs)) {
    const inputs = Array.from({ length: batch }, () => mutated(target, corpus, random));
    for (const input of inputs) runOne(input);
    if (coverage === null || !coverage.sawNew()) continue;
    // Asking costs some milliseconds, so it is asked once a batch; whose merit it was is found by running each alone.
    for (const input of inputs) {
      observe(target, input);
      if (coverage.count() > 0 && corpus.length < largestCorpus && input.length < largestKept) corpus.push(input);
    }
  }
  const parts = coverage === null ? null : coverage.size - before;
  return { target: target.name, ...count, corpus: corpus.length, parts, faults };
}

const firstLine = (text: string): string => text.split('\n', 1)[0] ?? '';

/** One to six changes on top of each other. */
function mutated({ mutators, maxBytes }: Target, corpus: readonly Uint8Array[], random: Random): Uint8Array {
  let input = random.pick(corpus);
  for (let steps = 1 + (random.chance(2) ? 0 : random.below(6)); steps > 0; steps -= 1) {
    // Cut after each change: three that multiply would fill the memory.
    input = random.pick(mutators)(input, random, random.pick(corpus)).subarray(0, maxBytes);
  }
  return input;
}
