/** What `better-compute start` does: stack up, say where everything is, stay or show the demonstration, end in order. */
import { ControlError, codeOf, isControlError } from '../../domain/errors.ts';
import { demonstrationTimesName } from '../../runtime/config.ts';
import type { StartOptions } from '../commands/start.ts';
import type { CliIo } from '../io.ts';
import { watchLauncher } from './launcher.ts';
import { type Stack, startStack } from './stack.ts';
import { welcome } from './welcome.ts';

/** 30 s between switch and drop at least, 2 s of margin, worker keys of 40 s: long enough to see, short enough to wait for. */
const demonstrationTimes = 'yes-for-demonstrations-only:30000,2000,40000';

/** @throws CANCELLED never: an interrupt is how a stack is meant to end */
export async function runStart(options: StartOptions, io: CliIo): Promise<void> {
  const ending = new AbortController();
  const giveUp = (): void => ending.abort(new ControlError('CANCELLED', 'ended before it was up', { details: { reason: 'interrupted' } }));
  io.signal.addEventListener('abort', giveUp, { once: true });
  const launcher = watchLauncher(process.env, giveUp);
  const hurry = onSecondInterrupt(io);
  try {
    await withStack({ ...io, env: stackEnv(options, io.env) }, { options, signal: ending.signal });
  } catch (error) {
    if (!(ending.signal.aborted && isControlError(error) && codeOf(error) === 'CANCELLED')) throw error;
  } finally {
    launcher.close();
    hurry.close();
  }
}

/** A demonstration shortens the wait of 24 h, under a name that says so, unless the caller has set it already. */
const stackEnv = ({ demonstration }: StartOptions, env: NodeJS.ProcessEnv): NodeJS.ProcessEnv =>
  demonstration && !env[demonstrationTimesName] ? { ...env, [demonstrationTimesName]: demonstrationTimes } : env;

async function withStack(io: CliIo, { options, signal }: { options: StartOptions; signal: AbortSignal }): Promise<void> {
  const begun = io.now();
  io.err('starting PostgreSQL, Temporal and the control plane …');
  const stack = await startStack({ env: io.env, now: () => io.now(), say: (line) => io.err(line), signal });
  try {
    io.err(`up after ${((io.now() - begun) / 1_000).toFixed(1)} s`);
    await afterUp(stack, io, { options, signal });
  } finally {
    io.err('ending …');
    await stack.stop();
    io.err('ended; the state stays in the state folder, and the next start goes on from it');
  }
}

async function afterUp(stack: Stack, io: CliIo, { options, signal }: { options: StartOptions; signal: AbortSignal }): Promise<void> {
  if (!options.demonstration) {
    io.err(await welcome(stack, io.env));
    return aborted(signal);
  }
  io.err(`see it in the Temporal UI: ${stack.addresses['temporalUi'] ?? stack.addresses['temporal']}`);
  const demonstration = await demonstrate(stack, io, { options, signal });
  try {
    if (options.once) return;
    io.err(await welcome(stack, io.env));
    await aborted(signal);
  } finally {
    await demonstration.stop();
    if (options.once) io.out(JSON.stringify(demonstration.summary));
  }
}

interface Shown {
  readonly summary: unknown;
  stop(): Promise<void>;
}

async function demonstrate(stack: Stack, io: CliIo, { options, signal }: { options: StartOptions; signal: AbortSignal }): Promise<Shown> {
  const { nodes, each, batch, metal } = options;
  if (batch) return (await import('./demonstration/batch/story.ts')).runBatchDemonstration({ stack, io, nodes, each, signal });
  if (metal) return (await import('./demonstration/metal/story.ts')).runMetalDemonstration({ stack, io, machines: nodes, signal });
  return (await import('./demonstration/story.ts')).runDemonstration({ stack, io, nodes, signal });
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });

/** Ends at once, without order, for the impatient; engines and processes end with us all the same. */
function onSecondInterrupt(io: CliIo): { close(): void } {
  const signals = ['SIGINT', 'SIGTERM'] as const;
  const atOnce = (): void => {
    io.err('ended at once');
    process.exit(130);
  };
  // Not in the same turn: the first interrupt must not count as the second.
  const arm = (): void => void setImmediate(() => signals.forEach((name) => process.on(name, atOnce)));
  io.signal.addEventListener('abort', arm, { once: true });
  return { close: () => signals.forEach((name) => process.off(name, atOnce)) };
}
