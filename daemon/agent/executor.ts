/**
 * Runs accepted commands: one after another within a lane (of a shared lane: for each subject, lanes.ts), lanes side by side. Every step is journaled before the next may happen,
 * so that a daemon killed at any moment repeats no effect and loses no result:
 *
 *   received → (start noted, durable) → effect → (end, durable) → result sent until confirmed
 *
 * After a crash: received and not started runs now; started and not ended is asked of its handler, else repeated if
 * repeating does no harm, else reported INTERRUPTED and never repeated.
 */
import { create, fromBinary, type Message, toBinary } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import type { CommandKindSpec } from '../../domain/commands/kinds.ts';
import { ControlError, codeOf } from '../../domain/errors.ts';
import { showInstant } from '../../domain/time.ts';
import { bounds, CommandOutcome, type CommandResult, CommandResultSchema, type EarlierAttempt } from '../../proto/index.ts';
import { type KindContext, type KindEnd, type KindHandler, type KindHandlers, leftToNextStart } from '../kinds/handler.ts';
import type { CrashHook } from '../state/crash-points.ts';
import type { AcceptedCommand, Journal, JournalEntry, StartNote } from '../state/journal.ts';
import { type AdmittedCommand, readAdmittedPayload } from './admission.ts';
import { Lanes, type Place, placeOf } from './lanes.ts';
import type { AgentLog } from './log.ts';

export interface ExecutorPorts {
  readonly journal: Journal;
  readonly handlers: KindHandlers;
  /** Server time. */
  readonly now: () => number;
  readonly crash: CrashHook;
  readonly log: AgentLog;
  /** The result is durable: send it. */
  readonly onFinished: (id: string) => void;
  readonly onProgress: (report: { id: string; done: number; total: number; note: string }) => void;
  /** The journal refused or failed. */
  readonly onFatal: (error: unknown) => void;
  /** For tests: another limit than the kind's. */
  readonly timeoutOf?: (spec: CommandKindSpec) => number;
}

interface Job {
  readonly entry: JournalEntry & { readonly state: 'received' | 'started' };
  readonly place: Place;
  readonly abort: AbortController;
}

export class Executor {
  readonly #ports: ExecutorPorts;
  readonly #lanes = new Lanes<Job>();
  readonly #active = new Set<Promise<void>>();
  #stopping = false;

  constructor(ports: ExecutorPorts) {
    this.#ports = ports;
  }

  get running(): number {
    return [...this.#lanes.running()].length;
  }

  hasRoom({ spec, subject }: Pick<AdmittedCommand, 'spec' | 'subject'>): boolean {
    return this.#lanes.hasRoom(placeOf(spec, subject));
  }

  /** Takes up what the journal says was left behind. Called once server time is known. */
  recover(): void {
    for (const entry of this.#ports.journal.unfinished()) this.#enqueue(entry);
  }

  /** The command is in the journal as received. */
  submit(command: AcceptedCommand): void {
    this.#enqueue({ ...command, state: 'received' });
  }

  /** Takes a waiting command out, or asks a running one to end. An unknown or finished one is left alone. */
  cancel(id: string, reason: string): void {
    const why = new ControlError('CANCELLED', `cancelled: ${reason === '' ? 'no reason was given' : reason}`);
    for (const job of this.#lanes.running()) if (job.entry.id === id) job.abort.abort(why);
    const waiting = this.#lanes.take(id);
    if (waiting === undefined) return;
    // It ends at once, not when its turn would have come.
    waiting.abort.abort(why);
    this.#track(this.#run(waiting));
  }

  /** Starts nothing more and waits for what runs; what has not ended by then is left to the next start. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    let timer: NodeJS.Timeout | undefined;
    const grace = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, graceMs);
    });
    await Promise.race([Promise.all(this.#active), grace]);
    clearTimeout(timer);
    for (const job of this.#lanes.running()) job.abort.abort(leftToNextStart);
  }

  #enqueue(entry: Job['entry']): void {
    const { spec, subject } = readAdmittedPayload(entry.body);
    const place = placeOf(spec, subject);
    this.#lanes.push({ entry, place, abort: new AbortController() });
    this.#next(place);
  }

  #next(place: Place): void {
    if (this.#stopping) return;
    const job = this.#lanes.begin(place);
    if (job === undefined) return;
    this.#track(
      this.#run(job).finally(() => {
        this.#lanes.end(place);
        this.#next(place);
      }),
    );
  }

  #track(work: Promise<void>): void {
    const active = work.catch(this.#ports.onFatal).finally(() => this.#active.delete(active));
    this.#active.add(active);
  }

  async #run(job: Job): Promise<void> {
    const { entry } = job;
    const { spec, payload, earlier } = readAdmittedPayload(entry.body);
    const handler = this.#ports.handlers[entry.kind];
    const startedAtMs = this.#ports.now();
    let end: KindEnd;
    try {
      if (handler === undefined) throw new ControlError('UNSUPPORTED', `this daemon has no handler for ${entry.kind}`);
      end =
        entry.state === 'started'
          ? await this.#takeUp({ ...job, entry }, { spec, payload, handler, earlier })
          : await this.#start(job, { spec, payload, handler, earlier });
    } catch (error) {
      if (error === leftToNextStart || job.abort.signal.reason === leftToNextStart) return;
      if (error instanceof JournalFailure) throw error.cause;
      end = failureOf(error);
    }
    this.#ports.crash('effect-done');
    await this.#finish(entry, { end, startedAtMs });
  }

  async #start(job: Job, work: Work): Promise<KindEnd> {
    job.abort.signal.throwIfAborted();
    this.#assertInTime(job.entry);
    const { prepare } = work.handler;
    const note =
      prepare === undefined
        ? {}
        : await this.#inTime(job, work, () => prepare(work.payload, this.#context(job, { note: {}, earlier: work.earlier })));
    await journaled(this.#ports.journal.started(job.entry.id, { atMs: this.#ports.now(), note }));
    return this.#perform(job, { ...work, note });
  }

  /** Started before a crash, and no end in the journal. */
  async #takeUp(job: StartedJob, work: Work): Promise<KindEnd> {
    const { entry } = job;
    if (work.handler.recover !== undefined) return work.handler.recover(work.payload, this.#context(job, { ...work, note: entry.note }));
    if (!work.spec.idempotent) return interrupted(entry);
    this.#assertInTime(entry);
    return this.#perform(job, { ...work, note: entry.note });
  }

  #perform(job: Job, work: Work & { note: StartNote }): Promise<KindEnd> {
    return this.#inTime(job, work, () => work.handler.run(work.payload, this.#context(job, work)));
  }

  async #inTime<T>(job: Job, { spec }: Work, act: () => Promise<T>): Promise<T> {
    const limitMs = this.#ports.timeoutOf?.(spec) ?? spec.timeoutMs;
    const timer = setTimeout(() => job.abort.abort(timedOut(limitMs)), limitMs);
    const { signal } = job.abort;
    try {
      // A handler that ignores its signal must not hold the lane for ever.
      return await Promise.race([act(), whenAborted(signal)]);
    } catch (error) {
      throw signal.aborted ? signal.reason : error;
    } finally {
      clearTimeout(timer);
    }
  }

  #context(job: Job, { note, earlier }: { note: StartNote; earlier: EarlierAttempt | undefined }): KindContext {
    const { id } = job.entry;
    return {
      commandId: id,
      signal: job.abort.signal,
      now: this.#ports.now,
      note,
      earlier,
      progress: (report: { done: number; total: number; note: string }) => this.#ports.onProgress({ id, ...report }),
    };
  }

  /** It may have waited in its lane, or through a crash, past its time or past what its approvers allowed (DMN-009). */
  #assertInTime(entry: Job['entry']): void {
    const approvedUntilMs = entry.claim?.kind === 'leaf' ? entry.claim.notAfterMs : Number.POSITIVE_INFINITY;
    if (this.#ports.now() <= Math.min(entry.expiresAtMs, approvedUntilMs)) return;
    const what = approvedUntilMs < entry.expiresAtMs ? 'its approval ended' : 'the command expired';
    const at = showInstant(Math.min(entry.expiresAtMs, approvedUntilMs));
    throw new ControlError('NOT_YET', `not started: ${what} at ${at} while it waited`, {
      details: { reason: 'expired', resultCode: 'EXPIRED' },
    });
  }

  async #finish(entry: Job['entry'], { end, startedAtMs }: { end: KindEnd; startedAtMs: number }): Promise<void> {
    const finishedAtMs = this.#ports.now();
    const result = encodeResult(entry, { end, startedAtMs: entry.state === 'started' ? entry.startedAtMs : startedAtMs, finishedAtMs });
    await this.#ports.journal.finished(entry.id, { atMs: finishedAtMs, result });
    this.#ports.log.info(
      { commandId: entry.id, kind: entry.kind, end: end.kind, ...(end.kind === 'succeeded' ? {} : { why: end.message }) },
      'command ended',
    );
    this.#ports.onFinished(entry.id);
  }
}

interface StartedJob extends Job {
  readonly entry: JournalEntry & { readonly state: 'started' };
}

interface Work {
  readonly spec: CommandKindSpec;
  readonly payload: Message;
  readonly handler: KindHandler;
  readonly earlier: EarlierAttempt | undefined;
}

class JournalFailure extends Error {
  constructor(cause: unknown) {
    super('the journal failed', { cause });
  }
}

const journaled = (write: Promise<void>): Promise<void> =>
  write.catch((error: unknown) => {
    throw new JournalFailure(error);
  });

const timedOut = (limitMs: number): ControlError =>
  new ControlError('UNAVAILABLE', `no end within ${limitMs / 1000} s`, { details: { reason: 'timeout', resultCode: 'TIMEOUT' } });

const interrupted = (entry: JournalEntry & { state: 'started' }): KindEnd => ({
  kind: 'interrupted',
  message: `the daemon stopped after ${entry.kind} was started at ${showInstant(entry.startedAtMs)} and cannot prove how it ended; it is not repeated`,
});

function whenAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal.aborted) reject(signal.reason as Error);
    else signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
}

function failureOf(error: unknown): KindEnd {
  const message = error instanceof Error ? error.message : String(error);
  const own = error instanceof ControlError ? error.details['resultCode'] : undefined;
  return { kind: 'failed', code: typeof own === 'string' ? own : codeOf(error), message };
}

function encodeResult(
  entry: Job['entry'],
  { end, startedAtMs, finishedAtMs }: { end: KindEnd; startedAtMs: number; finishedAtMs: number },
): Uint8Array {
  const base = {
    commandId: entry.id,
    seq: entry.seq,
    startedAtMs: BigInt(Math.max(0, Math.round(startedAtMs))),
    finishedAtMs: BigInt(Math.max(0, Math.round(finishedAtMs))),
    bodySha256: Buffer.from(entry.digest, 'hex'),
  };
  return toBinary(CommandResultSchema, create(CommandResultSchema, { ...base, ...endFields(end) }));
}

type EndFields = Pick<Partial<CommandResult>, 'outcome' | 'payload' | 'errorCode' | 'errorMessage'>;

function endFields(end: KindEnd): EndFields {
  switch (end.kind) {
    case 'succeeded': {
      const payload = anyPack(end.schema, create(end.schema, end.value));
      if (payload.value.length <= bounds.commandResultPayload) return { outcome: CommandOutcome.SUCCEEDED, payload };
      const why = `it was done, but its answer of ${payload.value.length} bytes exceeds ${bounds.commandResultPayload}`;
      return { outcome: CommandOutcome.FAILED, errorCode: 'FRAME_TOO_LARGE', errorMessage: why };
    }
    case 'failed':
      return {
        outcome: end.code === 'CANCELLED' ? CommandOutcome.CANCELLED : CommandOutcome.FAILED,
        errorCode: end.code,
        errorMessage: cut(end.message),
        ...answerOf(end),
      };
    case 'interrupted':
      return { outcome: CommandOutcome.INTERRUPTED, errorCode: 'INTERRUPTED', errorMessage: cut(end.message) };
  }
}

/** A failure is said whole even where what it found out is too large to go along. */
function answerOf({ answer }: KindEnd & { kind: 'failed' }): EndFields {
  if (answer === undefined) return {};
  const payload = anyPack(answer.schema, create(answer.schema, answer.value));
  return payload.value.length <= bounds.commandResultPayload ? { payload } : {};
}

const cut = (message: string): string => (message.length > 4096 ? `${message.slice(0, 4095)}…` : message);

/** The outcome of a confirmed result; the payload went over and is not kept. */
export function withoutPayload(result: Uint8Array): Uint8Array {
  const decoded = fromBinary(CommandResultSchema, result);
  delete decoded.payload;
  return toBinary(CommandResultSchema, decoded);
}
