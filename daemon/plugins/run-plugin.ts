/**
 * One call of a plugin: a child of its own session with one argument, no shell and an environment of a few names; input on its standard
 * input, the answer on its standard output, talk on its standard error. Everything is bounded, and nothing of it is there when this
 * returns: a plugin that is late, says too much or is not wanted any more is ended with all that it started.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { commandIdVariable, endProcessesOf, processesOf } from './leftovers.ts';

export interface PluginCall {
  readonly plugin: string;
  readonly method: string;
  readonly executable: string;
  /** It runs in there. */
  readonly folder: string;
  readonly commandId: string;
  readonly input: Uint8Array;
  readonly maxOutputBytes: number;
  readonly timeoutMs: number;
  /** Aborted: it is ended at once. */
  readonly signal: AbortSignal;
}

export interface PluginAnswer {
  readonly output: Buffer;
  /** The end of its talk, for the log. */
  readonly said: string;
}

const bounds = Object.freeze({
  /** Of its talk, the end of it. */
  saidBytes: 4 * 1024,
  /** For a plugin that is asked to end, before it is ended. */
  graceMs: 2 * second,
  /** For children that end with it, a moment later. */
  settleMs: second,
});

const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * @throws UNAVAILABLE plugin-not-started, plugin-late (result code TIMEOUT), plugin-killed, plugin-status, plugin-left-processes;
 *   FRAME_TOO_LARGE plugin-output; the signal's reason when it was aborted
 */
export async function runPlugin(call: PluginCall): Promise<PluginAnswer> {
  call.signal.throwIfAborted();
  const { plugin, method, commandId } = call;
  const child = spawn(call.executable, [method], {
    cwd: call.folder,
    env: { PATH: path, LANG: 'C.UTF-8', BC_PLUGIN: plugin, BC_METHOD: method, [commandIdVariable]: commandId },
    // A session of its own: it is ended as a whole, and has no terminal.
    detached: true,
    shell: false,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const watch = new Watch(call, child);
  try {
    const end = await watch.exited;
    const left = await leftBehind(commandId, child.pid as number, watch.stopped !== null);
    await watch.drained(left);
    return watch.judge(end, left);
  } finally {
    watch.close();
  }
}

interface Exit {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** What is heard of one child, and what ends it. */
class Watch {
  readonly exited: Promise<Exit>;
  /** Why it is ended before its time. */
  stopped: Error | null = null;
  readonly #call: PluginCall;
  readonly #child: ChildProcess;
  readonly #closed: Promise<void>;
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #output: Buffer[] = [];
  #outputBytes = 0;
  #said = Buffer.alloc(0);

  constructor(call: PluginCall, child: ChildProcess) {
    this.#call = call;
    this.#child = child;
    this.exited = new Promise((resolve, reject) => {
      child.once('error', (cause: NodeJS.ErrnoException) => reject(notStarted(call, cause)));
      child.once('exit', (status, signal) => resolve({ status, signal }));
    });
    this.#closed = new Promise((resolve) => void child.once('close', () => resolve()));
    child.stdout?.on('data', (piece: Buffer) => this.#take(piece));
    child.stderr?.on('data', (piece: Buffer) => {
      this.#said = Buffer.concat([this.#said, piece]).subarray(-bounds.saidBytes);
    });
    // One that does not read its input may have no use for it; its end says whether it was well.
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(call.input);
    this.#timers.push(setTimeout(() => this.#late(), call.timeoutMs));
    call.signal.addEventListener('abort', this.#aborted, { once: true });
  }

  readonly #aborted = (): void => this.#end(this.#call.signal.reason as Error, 'SIGKILL');

  #take(piece: Buffer): void {
    this.#outputBytes += piece.length;
    if (this.#outputBytes <= this.#call.maxOutputBytes) this.#output.push(piece);
    else this.#end(tooMuch(this.#call), 'SIGKILL');
  }

  /** It is asked first: what writes firmware has something to bring to an end. */
  #late(): void {
    this.#end(late(this.#call), 'SIGTERM');
    this.#timers.push(setTimeout(() => this.#kill('SIGKILL'), bounds.graceMs));
  }

  #end(why: Error, by: NodeJS.Signals): void {
    this.stopped ??= why;
    this.#kill(by);
  }

  #kill(by: NodeJS.Signals): void {
    const { pid, exitCode, signalCode } = this.#child;
    // Behind its end the number may be another one's; what it left is found by what it is.
    if (pid === undefined || exitCode !== null || signalCode !== null) return;
    try {
      process.kill(-pid, by);
    } catch {
      // It ended by itself.
    }
  }

  /** What it wrote is whole when every end of its pipes is closed; one that hides may hold them open for ever. */
  async drained(left: number): Promise<void> {
    await Promise.race([this.#closed, sleep(left === 0 && this.stopped === null ? bounds.settleMs : 0)]);
  }

  judge({ status, signal }: Exit, left: number): PluginAnswer {
    if (this.stopped !== null) throw this.stopped;
    const said = this.#said.toString('utf8');
    if (signal !== null) throw ended(this.#call, { reason: 'plugin-killed', how: `was ended by ${signal}`, said });
    if (status !== 0) throw ended(this.#call, { reason: 'plugin-status', how: `ended with status ${status ?? 'none'}`, said });
    if (left > 0) {
      const how = `left ${left} process(es) behind, which were ended: what they had done by then is not known`;
      throw ended(this.#call, { reason: 'plugin-left-processes', how, said });
    }
    return { output: Buffer.concat(this.#output), said };
  }

  close(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#call.signal.removeEventListener('abort', this.#aborted);
    for (const stream of [this.#child.stdin, this.#child.stdout, this.#child.stderr]) stream?.destroy();
  }
}

/** How many outlived it, beyond the moment that children of a pipe take; none does any more behind this. */
async function leftBehind(commandId: string, leader: number, isStopped: boolean): Promise<number> {
  const untilMs = Date.now() + (isStopped ? 0 : bounds.settleMs);
  while (Date.now() < untilMs) {
    if ((await processesOf(commandId, leader)).length === 0) return 0;
    await sleep(50);
  }
  return endProcessesOf(commandId, leader);
}

const nameOf = ({ plugin, method }: PluginCall): string => `${method} of plugin ${plugin}`;

const notStarted = (call: PluginCall, cause: NodeJS.ErrnoException): ControlError =>
  new ControlError(
    'UNAVAILABLE',
    `${nameOf(call)} was not started (${cause.code ?? cause.message}): ${call.executable} must be a program`,
    {
      cause,
      details: { reason: 'plugin-not-started' },
    },
  );

const late = (call: PluginCall): ControlError =>
  new ControlError(
    'UNAVAILABLE',
    `${nameOf(call)} did not end within ${call.timeoutMs / second} s and was ended: how far it came is not known`,
    {
      details: { reason: 'plugin-late', resultCode: 'TIMEOUT' },
    },
  );

const tooMuch = (call: PluginCall): ControlError =>
  new ControlError(
    'FRAME_TOO_LARGE',
    `${nameOf(call)} answered more than the ${call.maxOutputBytes} bytes of its manifest and was ended: how far it came is not known`,
    { details: { reason: 'plugin-output' } },
  );

function ended(call: PluginCall, { reason, how, said }: { reason: string; how: string; said: string }): ControlError {
  const words = shown(said);
  return new ControlError('UNAVAILABLE', `${nameOf(call)} ${how}${words === '' ? '' : `: ${words}`}`, { details: { reason } });
}

/** The last of what a program said, as it can stand in a message. */
export const shown = (said: string): string =>
  said
    .replaceAll(/\p{C}+/gu, ' ')
    .trim()
    .slice(-400);
