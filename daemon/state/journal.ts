/**
 * The daemon's memory of commands: what it accepted, what it started, how it ended, and what the control plane has confirmed.
 *
 * Invariants
 *   1. A record is durable before anything that depends on it happens: received before the acknowledgement, started before the
 *      effect, finished before the result is sent.
 *   2. A command id is never accepted for two bodies; the same body again is a duplicate and starts nothing.
 *   3. What a command used up of a quorum is part of the record that accepts it.
 *   4. A command leaves the journal only when signed statements prove, durably, that its expiry is past: no later word about the
 *      time can make it acceptable again.
 *
 * The rules are here, over records; where records are kept is a port (journal-files.ts on a machine, memory in a simulated fleet).
 */
import { ControlError, isControlError } from '../../domain/errors.ts';
import { day, hour } from '../../domain/time.ts';
import type { ClaimHolder, QuorumClaim } from '../quorum/claims.ts';
import { type CrashHook, neverCrash } from './crash-points.ts';

export interface AcceptedCommand {
  readonly id: string;
  readonly kind: string;
  /** Lower-case hex of SHA-256 over the body. */
  readonly digest: string;
  readonly seq: bigint;
  readonly expiresAtMs: number;
  /** The signed CommandBody. */
  readonly body: Uint8Array;
  /** What it used up of a quorum; absent for most. */
  readonly claim?: QuorumClaim;
}

/** What a handler wants to find again after a crash, such as the boot id before a reboot. */
export type StartNote = Readonly<Record<string, string>>;

interface Known {
  readonly id: string;
  readonly kind: string;
  readonly digest: string;
  readonly seq: bigint;
  readonly expiresAtMs: number;
  readonly claim?: QuorumClaim;
}

export type JournalEntry = Known &
  (
    | { readonly state: 'received'; readonly body: Uint8Array }
    | { readonly state: 'started'; readonly body: Uint8Array; readonly startedAtMs: number; readonly note: StartNote }
    /** result: an encoded CommandResult, sent until a receipt comes. */
    | { readonly state: 'finished'; readonly finishedAtMs: number; readonly result: Uint8Array }
    /** The result's payload is forgotten; `result` keeps the outcome. */
    | { readonly state: 'receipted'; readonly result: Uint8Array }
  );

export type JournalRecord =
  | { readonly type: 'received'; readonly command: AcceptedCommand }
  | { readonly type: 'started'; readonly id: string; readonly atMs: number; readonly note: StartNote }
  | { readonly type: 'finished'; readonly id: string; readonly atMs: number; readonly result: Uint8Array }
  | { readonly type: 'receipted'; readonly id: string; readonly result: Uint8Array }
  /** A whole entry, in a compacted journal. */
  | { readonly type: 'entry'; readonly entry: JournalEntry }
  /** Everything before is forgotten. */
  | { readonly type: 'snapshot'; readonly highestSeq: bigint };

const orderReason = 'journal-order';

/** A step that does not follow: a fault of ours about one command. Nothing was written, and the journal holds as before. */
export const isOrderFault = (error: unknown): error is ControlError => isControlError(error) && error.details['reason'] === orderReason;

export interface JournalStorage {
  /** Resolves when the records survive a power cut. */
  append(records: readonly JournalRecord[], unsynced?: () => void): Promise<void>;
  /** Puts these records in the place of all earlier ones, at once. */
  replaceAll(records: Iterable<JournalRecord>): Promise<void>;
  /** Worth rewriting: much of what is kept is superseded. */
  isLong(): boolean;
  close(): Promise<void>;
}

/** How long past its expiry a command is remembered at least. */
export const rememberedMs = hour;
/** A result nobody confirms is given up after this. */
export const unconfirmedMs = 30 * day;

export interface JournalOptions {
  readonly storage: JournalStorage;
  /** What the storage held when it was opened, in order. */
  readonly records: Iterable<JournalRecord>;
  readonly crash?: CrashHook;
  /** A result without its payload, to answer a later duplicate with. */
  readonly withoutPayload: (result: Uint8Array) => Uint8Array;
}

export class Journal {
  readonly #entries = new Map<string, JournalEntry>();
  readonly #inFlight = new Set<JournalRecord>();
  readonly #storage: JournalStorage;
  readonly #crash: CrashHook;
  readonly #withoutPayload: (result: Uint8Array) => Uint8Array;
  #highestSeq = 0n;

  constructor(options: JournalOptions) {
    this.#storage = options.storage;
    this.#crash = options.crash ?? neverCrash;
    this.#withoutPayload = options.withoutPayload;
    for (const record of options.records) this.#apply(record);
  }

  /** Highest log position that was journaled; positions carry no authority, they say where to go on. */
  get highestSeq(): bigint {
    return this.#highestSeq;
  }

  get size(): number {
    return this.#entries.size;
  }

  find(id: string): JournalEntry | undefined {
    return this.#entries.get(id);
  }

  /** Accepted and not finished, in log order. */
  unfinished(): (JournalEntry & { readonly state: 'received' | 'started' })[] {
    return [...this.#entries.values()]
      .filter(
        (entry): entry is JournalEntry & { readonly state: 'received' | 'started' } =>
          entry.state === 'received' || entry.state === 'started',
      )
      .sort((a, b) => Number(a.seq - b.seq));
  }

  /** Finished and not confirmed, in log order. */
  unconfirmed(): (JournalEntry & { readonly state: 'finished' })[] {
    return [...this.#entries.values()]
      .filter((entry): entry is JournalEntry & { readonly state: 'finished' } => entry.state === 'finished')
      .sort((a, b) => Number(a.seq - b.seq));
  }

  /** What used up a leaf or a slot, and what it used. */
  claims(): (ClaimHolder & { readonly claim: QuorumClaim })[] {
    return [...this.#entries.values()].flatMap(({ id, digest, claim }) => (claim === undefined ? [] : [{ commandId: id, digest, claim }]));
  }

  async received(command: AcceptedCommand): Promise<void> {
    this.#crash('before-received');
    await this.#write({ type: 'received', command }, 'received-unsynced');
    this.#crash('after-received');
  }

  async started(id: string, start: { atMs: number; note: StartNote }): Promise<void> {
    this.#crash('before-started');
    await this.#write({ type: 'started', id, ...start }, 'started-unsynced');
    this.#crash('after-started');
  }

  async finished(id: string, end: { atMs: number; result: Uint8Array }): Promise<void> {
    this.#crash('before-finished');
    await this.#write({ type: 'finished', id, ...end }, 'finished-unsynced');
    this.#crash('after-finished');
  }

  /** A receipt for a command that is unknown or not finished is ignored: the gateway is wrong, and nothing is lost. */
  async receipted(id: string): Promise<boolean> {
    const entry = this.#entries.get(id);
    if (entry?.state !== 'finished') return false;
    this.#crash('before-receipted');
    await this.#write({ type: 'receipted', id, result: this.#withoutPayload(entry.result) });
    this.#crash('after-receipted');
    return true;
  }

  /**
   * Forgets what may be forgotten and rewrites the storage when it has grown long.
   *
   * @param floorMs a time before which none is ever believed again, also after a restart
   */
  async compact(floorMs: number): Promise<number> {
    const leaving = [...this.#entries.values()].filter((entry) => isForgettable(entry, floorMs));
    for (const entry of leaving) this.#entries.delete(entry.id);
    if (this.#storage.isLong()) await this.#storage.replaceAll(this.#snapshot());
    return leaving.length;
  }

  async close(): Promise<void> {
    await this.#storage.close();
  }

  *#snapshot(): Generator<JournalRecord, void> {
    yield { type: 'snapshot', highestSeq: this.#highestSeq };
    for (const entry of this.#entries.values()) yield { type: 'entry', entry };
    // Appended, perhaps durable already, not applied yet: without these a rewrite at that moment would lose them.
    yield* this.#inFlight;
  }

  async #write(record: JournalRecord, point?: 'received-unsynced' | 'started-unsynced' | 'finished-unsynced'): Promise<void> {
    this.#assertFollows(record);
    this.#inFlight.add(record);
    try {
      await this.#storage.append([record], point === undefined ? undefined : () => this.#crash(point));
      this.#apply(record);
    } finally {
      this.#inFlight.delete(record);
    }
  }

  /** What is on its way to the disk counts: its id is taken from before the first wait on. */
  #assertFollows(record: JournalRecord): void {
    if (record.type === 'snapshot' || record.type === 'entry') return;
    const id = record.type === 'received' ? record.command.id : record.id;
    const isComing = [...this.#inFlight].some((other) => other.type === 'received' && other.command.id === id);
    const state = isComing ? 'incoming' : (this.#entries.get(id)?.state ?? 'none');
    if (follows[record.type].includes(state)) return;
    throw new ControlError('INTERNAL', `journal: ${record.type} does not follow ${state} for command ${id}`, {
      details: { reason: orderReason },
    });
  }

  #apply(record: JournalRecord): void {
    if (record.type === 'snapshot') {
      this.#entries.clear();
      this.#highestSeq = record.highestSeq;
      return;
    }
    const entry = nextEntry(this.#entries, record);
    // Records of an entry that an earlier compaction forgot: nothing to follow up.
    if (entry === undefined) return;
    this.#entries.set(entry.id, entry);
    if (entry.seq > this.#highestSeq) this.#highestSeq = entry.seq;
  }
}

function isForgettable(entry: JournalEntry, floorMs: number): boolean {
  if (entry.state === 'receipted') return floorMs > entry.expiresAtMs + rememberedMs;
  return entry.state === 'finished' && floorMs > Math.max(entry.expiresAtMs, entry.finishedAtMs) + unconfirmedMs;
}

const known = ({ id, kind, digest, seq, expiresAtMs, claim }: Known): Known => ({
  id,
  kind,
  digest,
  seq,
  expiresAtMs,
  ...(claim === undefined ? {} : { claim }),
});

function nextEntry(
  entries: ReadonlyMap<string, JournalEntry>,
  record: Exclude<JournalRecord, { type: 'snapshot' }>,
): JournalEntry | undefined {
  // The first word stands: an id that came twice must not become startable again.
  if (record.type === 'received')
    return entries.get(record.command.id) ?? { ...known(record.command), state: 'received', body: record.command.body };
  if (record.type === 'entry') return record.entry;
  const entry = entries.get(record.id);
  if (entry === undefined) return undefined;
  switch (record.type) {
    case 'started':
      return entry.state === 'received' || entry.state === 'started'
        ? { ...known(entry), state: 'started', body: entry.body, startedAtMs: record.atMs, note: record.note }
        : entry;
    case 'finished':
      return { ...known(entry), state: 'finished', finishedAtMs: record.atMs, result: record.result };
    case 'receipted':
      return { ...known(entry), state: 'receipted', result: record.result };
  }
}

/** The states each step may follow. */
const follows: Readonly<Record<'received' | 'started' | 'finished' | 'receipted', readonly string[]>> = Object.freeze({
  received: ['none'],
  started: ['received', 'started'],
  finished: ['received', 'started'],
  receipted: ['finished'],
});
