/** The session store in memory: the same promises as over PostgreSQL (epochs, fencing, first result wins), and a switch that takes it away. */
import { createHash } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import type {
  CommandProgressRow,
  CommandResultRow,
  HeldState,
  NewSession,
  OpenCommands,
  PublishedTrust,
  QueuedCommand,
  ReadCursor,
  RecordedBatch,
  Revocation,
  SessionBatch,
  SessionStore,
  SessionTouch,
  StoredDesiredState,
} from '../../gateway/session/store.ts';
import { CommandBodySchema, encodeMessage, SignatureSchema } from '../../proto/index.ts';

export interface StoredSession extends NewSession {
  readonly epoch: number;
  endedAs: string | null;
  lastSeenAt: number;
  reportedTrust: number | null;
}

interface StoredCommand {
  readonly command: QueuedCommand;
  state: number;
  rejectReason: string | null;
}

export const signatureBytes = encodeMessage(SignatureSchema, { sig: new Uint8Array(64).fill(7), kid: 'ab'.repeat(32) }, 'certificate');

export const trustOf = (version: number): PublishedTrust => ({
  version,
  body: new TextEncoder().encode(`trust-${version}`),
  signature: signatureBytes,
});

export class MemoryStore implements SessionStore {
  readonly sessions: StoredSession[] = [];
  readonly epochs = new Map<string, number>();
  readonly log = new Map<string, StoredCommand[]>();
  readonly results = new Map<string, CommandResultRow>();
  readonly progress = new Map<string, CommandProgressRow>();
  readonly revocations: Revocation[] = [];
  readonly inactive = new Map<string, ControlError>();
  readonly counts = { batches: 0, touches: 0, touchedRows: 0, reads: 0, opens: 0 };
  trust: PublishedTrust | null = trustOf(1);
  desired = new Map<string, StoredDesiredState>();
  /** Set: every call fails with it. */
  away: Error | null = null;
  /** Waited for at the start of each call of that name. */
  readonly gates = new Map<string, Promise<void>>();

  async #enter(name: string): Promise<void> {
    await this.gates.get(name);
    if (this.away !== null) throw this.away;
  }

  takeAway(): void {
    this.away = new ControlError('UNAVAILABLE', 'the database does not answer', { details: { reason: 'database-away' } });
  }

  bringBack(): void {
    this.away = null;
  }

  /** Appends to a node's log, as the command queue does. */
  enqueue(
    nodeId: string,
    { id, kind = 'inventory.refresh', lane = 'control', bytes = 0 }: { id: string; kind?: string; lane?: string; bytes?: number },
  ): QueuedCommand {
    const log = this.log.get(nodeId) ?? [];
    this.log.set(nodeId, log);
    const body = encodeMessage(CommandBodySchema, { commandId: id, nodeId, kind, batchId: 'x'.repeat(bytes) }, 'commandBody');
    const command = {
      nodeId,
      seq: log.length + 1,
      id,
      kind,
      lane,
      body,
      signature: signatureBytes,
      deadline: Number.MAX_SAFE_INTEGER,
      state: 0,
    } as const;
    log.push({ command, state: 0, rejectReason: null });
    return command;
  }

  cancel(id: string): void {
    for (const entry of this.#find(id)) entry.state = 5;
  }

  stateOf(id: string): number | undefined {
    return this.#find(id)[0]?.state;
  }

  revoke(issuer: string, serial: string): void {
    this.revocations.push({
      seq: this.revocations.length + 1,
      issuer,
      serial,
      nodeId: '',
      reason: 'test',
      revokedAt: Date.now(),
      notAfter: Number.MAX_SAFE_INTEGER,
    });
  }

  openOf(nodeId: string): StoredSession | undefined {
    return this.sessions.find((session) => session.nodeId === nodeId && session.endedAs === null);
  }

  async endSessionsOf(gatewayId: string): Promise<void> {
    await this.#enter('endSessionsOf');
    for (const session of this.sessions) if (session.gatewayId === gatewayId) session.endedAs ??= 'gateway-restarted';
  }

  async openSession(session: NewSession): Promise<{ epoch: number; ackedSeq: number; identityGeneration: number }> {
    await this.#enter('openSession');
    this.counts.opens += 1;
    const refused = this.inactive.get(session.nodeId);
    if (refused !== undefined) throw refused;
    for (const other of this.sessions) if (other.nodeId === session.nodeId) other.endedAs ??= 'superseded';
    const epoch = (this.epochs.get(session.nodeId) ?? 0) + 1;
    this.epochs.set(session.nodeId, epoch);
    this.sessions.push({ ...session, epoch, endedAs: null, lastSeenAt: session.now ?? 0, reportedTrust: session.trustVersion });
    return { epoch, ackedSeq: 0, identityGeneration: 1 };
  }

  async endSession(sessionId: string, reason: string): Promise<void> {
    await this.#enter('endSession');
    for (const session of this.sessions) if (session.sessionId === sessionId) session.endedAs ??= reason;
  }

  async touchSessions(touches: readonly SessionTouch[]): Promise<{ ended: string[] }> {
    await this.#enter('touchSessions');
    this.counts.touches += 1;
    this.counts.touchedRows += touches.length;
    const ended: string[] = [];
    for (const touch of touches) {
      const session = this.sessions.find(({ sessionId, endedAs }) => sessionId === touch.sessionId && endedAs === null);
      if (session === undefined) ended.push(touch.sessionId);
      else {
        session.lastSeenAt = Math.max(session.lastSeenAt, touch.lastSeenAt);
        session.reportedTrust = Math.max(session.reportedTrust ?? 0, touch.trustVersion ?? 0);
      }
    }
    return { ended };
  }

  async readOpenCommands(cursors: readonly ReadCursor[], limitPerNode: number): Promise<OpenCommands> {
    await this.#enter('readOpenCommands');
    this.counts.reads += 1;
    const fenced = cursors.filter(({ nodeId, epoch }) => this.epochs.get(nodeId) !== epoch).map(({ nodeId }) => nodeId);
    const commands = cursors
      .filter(({ nodeId }) => !fenced.includes(nodeId))
      .flatMap(({ nodeId, afterSeq }) =>
        (this.log.get(nodeId) ?? [])
          .filter(({ command, state }) => state < 2 && command.seq > afterSeq)
          .slice(0, limitPerNode)
          .map(({ command }) => command),
      );
    return { commands, fenced };
  }

  async cancelledAmong(ids: readonly string[]): Promise<string[]> {
    await this.#enter('cancelledAmong');
    return ids.filter((id) => this.stateOf(id) === 5);
  }

  async record({ acks, rejects, results }: SessionBatch): Promise<RecordedBatch> {
    await this.#enter('record');
    this.counts.batches += 1;
    const isFenced = ({ nodeId, epoch }: { nodeId: string; epoch: number }): boolean => this.epochs.get(nodeId) !== epoch;
    const all = [...acks, ...rejects, ...results];
    if (all.some((row) => row.commandId === 'poison')) throw new ControlError('INVALID_INPUT', 'the database refuses this row');
    const fenced = all.filter(isFenced).map((row) => row.commandId);
    for (const row of acks) if (!isFenced(row)) for (const entry of this.#find(row.commandId)) if (entry.state === 0) entry.state = 1;
    for (const row of rejects) if (!isFenced(row)) for (const entry of this.#find(row.commandId)) this.#reject(entry, row.reason);
    const settled: string[] = [];
    const unknown: string[] = [];
    for (const row of results) {
      if (isFenced(row)) continue;
      settled.push(row.commandId);
      if (!this.#store(row)) unknown.push(row.commandId);
    }
    return { settled, fenced, unknown };
  }

  async recordProgress(rows: readonly CommandProgressRow[]): Promise<{ fenced: string[] }> {
    await this.#enter('recordProgress');
    const isOwn = ({ nodeId, epoch }: CommandProgressRow): boolean => this.epochs.get(nodeId) === epoch;
    for (const row of rows.filter(isOwn)) if ((this.stateOf(row.commandId) ?? 2) < 2) this.progress.set(row.commandId, row);
    return { fenced: rows.filter((row) => !isOwn(row)).map(({ commandId }) => commandId) };
  }

  async publishedTrust(): Promise<PublishedTrust | null> {
    await this.#enter('publishedTrust');
    return this.trust;
  }

  async findDesiredState(nodeId: string): Promise<StoredDesiredState | null> {
    await this.#enter('findDesiredState');
    return this.desired.get(nodeId) ?? null;
  }

  async findNewerStates(held: readonly HeldState[]): Promise<ReadonlyMap<string, StoredDesiredState>> {
    await this.#enter('findNewerStates');
    const newer = held.flatMap(({ nodeId, generation }): [string, StoredDesiredState][] => {
      const state = this.desired.get(nodeId);
      return state === undefined || state.generation <= generation ? [] : [[nodeId, state]];
    });
    return new Map(newer);
  }

  async readAllRevoked(): Promise<{ seq: number; revocations: Revocation[] }> {
    await this.#enter('readAllRevoked');
    return { seq: this.revocations.length, revocations: [...this.revocations] };
  }

  async readRevocationsAfter(seq: number): Promise<{ seq: number; revocations: Revocation[] }> {
    await this.#enter('readRevocationsAfter');
    return { seq: this.revocations.at(-1)?.seq ?? 0, revocations: this.revocations.filter((revocation) => revocation.seq > seq) };
  }

  #find(id: string): StoredCommand[] {
    return [...this.log.values()].flat().filter(({ command }) => command.id === id);
  }

  #reject(entry: StoredCommand, reason: string): void {
    if (entry.state >= 2) return;
    entry.state = 6;
    entry.rejectReason = reason;
  }

  #store(row: CommandResultRow): boolean {
    const entry = this.#find(row.commandId).find(({ command }) => digestOf(command.body).equals(row.bodySha256));
    if (entry === undefined) return false;
    if (!this.results.has(row.commandId)) this.results.set(row.commandId, row);
    if (entry.state < 2) entry.state = row.outcome === 1 ? 2 : 3;
    return true;
  }
}

export const digestOf = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();
