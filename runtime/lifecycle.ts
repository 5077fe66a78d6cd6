/**
 * The life of one process: start, say where it listens, run until a signal or until its parent is gone, stop in order, exit.
 *
 * Invariants: `stop` runs once; a process whose parent died does not live on (its stdin closes, whatever killed the parent);
 * a stop that hangs is cut after a bounded time; a failed start leaves one `error:` and one `hint:` line and the exit code
 * of the error table.
 */
import { ControlError } from '../domain/errors.ts';
import { second } from '../domain/time.ts';
import { errorLines, exitCodeOf } from './exit.ts';
import { createLogger, type Log, levelOf } from './log.ts';

export interface ProcessContext {
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
  /** Ends the process with this error once it has stopped; for faults that only show while it runs. */
  fail(error: unknown): void;
  /** Ends it as a signal does: stopped in order, exit code 0. */
  end(reason: string): void;
}

export interface RunningProcess {
  /** Shown in the ready line: name → host:port or URL. */
  readonly addresses: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

export interface ProcessDefinition {
  readonly name: string;
  readonly start: (context: ProcessContext) => Promise<RunningProcess>;
}

/** A drain may take this long before the process leaves anyway. */
const stopWithinMs = 20 * second;

/** Runs the process to its end and exits; never returns to a caller that could do more. */
export async function runProcess({ name, start }: ProcessDefinition): Promise<void> {
  const log = createLogger({ process: name, level: levelOf(process.env['BETTER_COMPUTE_LOG_LEVEL']) });
  const ending = endings(log);
  let running: RunningProcess | undefined;
  let failure: unknown;
  try {
    running = await Promise.race([start({ env: process.env, log, fail: ending.fail, end: ending.end }), ending.beforeReady]);
    announce(name, running.addresses, log);
    await ending.asked;
  } catch (error) {
    failure = error;
  }
  const exitCode = await leave({ running, failure, log });
  process.exit(exitCode);
}

interface Endings {
  /** Resolves when the process shall end; rejects with what made it fail. */
  readonly asked: Promise<void>;
  /** Rejects when the end is asked for before the start is through. */
  readonly beforeReady: Promise<never>;
  fail(error: unknown): void;
  end(reason: string): void;
}

function endings(log: Log): Endings {
  let end: (reason: string) => void = () => undefined;
  let fail: (error: unknown) => void = () => undefined;
  const asked = new Promise<void>((resolve, reject) => {
    let told = false;
    end = (reason) => {
      if (!told) log.info({ reason }, 'ending');
      told = true;
      resolve();
    };
    fail = reject;
  });
  asked.catch(() => undefined);
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => end(signal));
  process.on('uncaughtException', (error) => fail(error));
  process.on('unhandledRejection', (error) => fail(error));
  if (process.env['BETTER_COMPUTE_EXIT_WITH_PARENT'] === '1') onParentGone(() => end('the parent is gone'));
  const beforeReady = asked.then(() => {
    throw new ControlError('CANCELLED', 'ended before it was ready', { details: { reason: 'ended-early' } });
  });
  beforeReady.catch(() => undefined);
  return { asked, beforeReady, fail: (error) => fail(error), end: (reason) => end(reason) };
}

/** A parent holds the other end of our stdin; however it dies, the pipe closes. */
export function onParentGone(then: () => void, input: NodeJS.ReadStream = process.stdin): void {
  let told = false;
  const tell = (): void => {
    if (told) return;
    told = true;
    then();
  };
  for (const event of ['end', 'close', 'error'] as const) input.once(event, tell);
  input.resume();
}

function announce(name: string, addresses: Readonly<Record<string, string>>, log: Log): void {
  log.info({ addresses }, 'ready');
  if (process.env['BETTER_COMPUTE_READY'] === 'json')
    process.stdout.write(`${JSON.stringify({ ready: true, process: name, addresses })}\n`);
}

async function leave({ running, failure, log }: { running: RunningProcess | undefined; failure: unknown; log: Log }): Promise<number> {
  if (failure !== undefined) {
    log.error({ err: failure }, 'failed');
    process.stderr.write(errorLines(failure));
  }
  const cut = setTimeout(() => {
    log.error({ stopWithinMs }, 'did not stop in time');
    process.exit(failure === undefined ? 70 : exitCodeOf(failure));
  }, stopWithinMs);
  try {
    await running?.stop();
  } catch (error) {
    log.error({ err: error }, 'stopping failed');
    process.stderr.write(errorLines(error));
    return failure === undefined ? exitCodeOf(error) : exitCodeOf(failure);
  } finally {
    clearTimeout(cut);
  }
  return failure === undefined ? 0 : exitCodeOf(failure);
}
