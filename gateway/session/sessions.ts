/**
 * All sessions of this gateway: who is connected, what they are given, what they said.
 *
 * Invariants: at most one open session per node, the one with the highest epoch; a session is recorded before it is welcomed
 * and its end is recorded once; Welcome reads the published trust after the session was recorded, and a publication in
 * between is sent behind it; a failing database ends no session and no process.
 */
import { randomUUID } from 'node:crypto';
import type { TrustRefused } from '../../proto/index.ts';
import { refusal } from '../grpc/refusals.ts';
import type { GatewayLog } from '../log.ts';
import type { GatewayMetrics } from '../metrics.ts';
import type { Scheduler } from '../scheduler.ts';
import { AgentSession } from './agent-session.ts';
import type { BrokerQuestion, BrokerRelay } from './broker-relay.ts';
import type { Said, SessionHost, SessionPeer, SessionTerms } from './contract.ts';
import { DatabaseWatch } from './database-watch.ts';
import { Dispatcher } from './dispatcher.ts';
import { createLimiter } from './limiter.ts';
import { openingRow } from './opening-row.ts';
import { Presence } from './presence.ts';
import { ProgressBoard } from './progress.ts';
import type { HelloFacts } from './read-frames.ts';
import { Recorder } from './recorder.ts';
import { inTurns, sendSlots } from './spread.ts';
import type { CommandProgressRow, PublishedTrust, Revocation, SessionStore } from './store.ts';
import type { SessionStream, SessionTransport } from './stream.ts';
import { TrustFeed } from './trust-feed.ts';

export interface SessionsOptions {
  readonly store: SessionStore;
  readonly terms: SessionTerms;
  readonly scheduler: Scheduler;
  readonly random: () => number;
  readonly log: GatewayLog;
  readonly metrics: GatewayMetrics;
  readonly brokers: BrokerRelay;
  onTrust?(trust: PublishedTrust): void;
}

export class Sessions implements SessionHost<AgentSession> {
  readonly terms: SessionTerms;
  readonly random: () => number;
  readonly database: DatabaseWatch;
  readonly #options: SessionsOptions;
  readonly #all = new Set<AgentSession>();
  readonly #byNode = new Map<string, AgentSession>();
  readonly #trust: TrustFeed;
  readonly #recorder: Recorder;
  readonly #progress: ProgressBoard;
  readonly #dispatcher: Dispatcher;
  readonly #presence: Presence;
  readonly #opens = createLimiter({ atATime: 8, maxWaiting: 10_000 });
  readonly #ends = createLimiter({ atATime: 2, maxWaiting: 100_000 });
  readonly #pendingEnds = new Set<Promise<void>>();
  #isDraining = false;
  #lastIssuer = '';

  constructor(options: SessionsOptions) {
    const { store, scheduler } = options;
    this.#options = options;
    this.terms = options.terms;
    this.random = options.random;
    this.database = new DatabaseWatch(scheduler.now);
    const watch = <T>(work: () => Promise<T>): Promise<T> => this.database.watch(work);
    this.#trust = new TrustFeed(
      () => watch(() => store.publishedTrust()),
      (trust) => this.#broadcastTrust(trust),
    );
    this.#recorder = new Recorder({
      record: (batch) => watch(() => store.record(batch)),
      scheduler,
      onUnknown: (commandIds) => options.log.warn({ commandIds }, 'results of no known command, or of another body'),
      onRoom: () => inTurns(this.#all, (session) => session.onRoom()),
    });
    this.#progress = new ProgressBoard({
      scheduler,
      write: (rows) => watch(() => store.recordProgress(rows)),
      onError: (error) => this.#databaseFailed('progress', error),
    });
    this.#dispatcher = new Dispatcher({
      scheduler,
      read: (cursors, limit) => watch(() => store.readOpenCommands(cursors, limit)),
      cancelledAmong: (ids) => watch(() => store.cancelledAmong(ids)),
      onError: (error) => this.#databaseFailed('dispatch', error),
    });
    this.#presence = new Presence({
      scheduler,
      sessions: () => this.#byNode.values(),
      write: (touches) => watch(() => store.touchSessions(touches)),
      onError: (error) => this.#databaseFailed('presence', error),
    });
  }

  get size(): number {
    return this.#byNode.size;
  }

  /** Welcomed, one per node. */
  current(): IterableIterator<AgentSession> {
    return this.#byNode.values();
  }

  find(nodeId: string): AgentSession | undefined {
    return this.#byNode.get(nodeId);
  }

  get isRecorderFull(): boolean {
    return this.#recorder.isFull;
  }

  get publishedVersion(): number | null {
    return this.#trust.current?.version ?? null;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  now(): number {
    return this.#options.scheduler.now();
  }

  /** A stream whose peer was verified. @throws draining, database-unavailable */
  accept<S extends SessionStream>(stream: S, peer: SessionPeer, transport: SessionTransport<S>): AgentSession {
    if (this.#isDraining) throw refusal('draining');
    if (this.database.isRefusing) throw refusal('database-unavailable');
    const session = new AgentSession(stream, this, {
      id: randomUUID(),
      peer: this.#withSharedIssuer(peer),
      transport,
    });
    this.#all.add(session);
    return session;
  }

  open(session: AgentSession, hello: HelloFacts): void {
    void this.#open(session, hello).catch((error: unknown) => {
      this.#options.log.debug({ nodeId: session.nodeId, err: error }, 'session refused');
      session.onOpenFailed(error);
    });
  }

  record(session: AgentSession, said: Said): void {
    this.#recorder.push(session, said);
  }

  progress(session: AgentSession, row: CommandProgressRow): void {
    this.#progress.push(session, row);
  }

  reported(_session: AgentSession, soon: boolean): void {
    if (soon) this.#presence.soon();
  }

  wake(session: AgentSession): void {
    this.#dispatcher.wake(session);
  }

  trustRefused(session: AgentSession, refused: TrustRefused): void {
    this.#options.metrics.trustRefused();
    const { reason, detail, offeredVersion, heldVersion } = refused;
    const fields = { nodeId: session.nodeId, reason, detail, offeredVersion: String(offeredVersion), heldVersion: String(heldVersion) };
    this.#options.log.warn(fields, 'a daemon refuses the trust bundle');
  }

  ask(session: AgentSession, question: BrokerQuestion): void {
    this.#options.brokers.relay(session, question);
  }

  ended(session: AgentSession, reason: string): void {
    this.#options.metrics.refused(reason);
    this.#options.log.debug({ nodeId: session.nodeId, reason }, 'session ended by the gateway');
  }

  failed(session: AgentSession, error: unknown): void {
    this.#options.log.error({ nodeId: session.nodeId, err: error }, 'a session failed');
  }

  closed(session: AgentSession): void {
    if (!this.#all.delete(session)) return;
    const wasUseful = session.isRecorded;
    if (this.#byNode.get(session.nodeId) === session) this.#byNode.delete(session.nodeId);
    this.#dispatcher.forget(session);
    if (session.isRecorded) this.#recordEnd(session);
    session.streamClosed(wasUseful);
  }

  /** One second has passed. */
  sweep(): void {
    const now = this.now();
    for (const session of this.#all) session.sweep(now);
    if (this.database.isReleasing && !this.#isDraining) this.#release();
  }

  /** A poke: these nodes, or all. */
  poke(nodeIds: readonly string[] | 'sweep'): void {
    if (nodeIds === 'sweep') return this.#dispatcher.poke(this.#byNode.values());
    this.#dispatcher.poke(nodeIds.map((nodeId) => this.#byNode.get(nodeId)).filter((session) => session !== undefined));
  }

  async refreshTrust(): Promise<void> {
    try {
      await this.#trust.fresh();
    } catch (error) {
      this.#databaseFailed('trust', error);
    }
  }

  onRevoked(revocations: readonly Revocation[]): void {
    const revoked = new Map(revocations.map((revocation) => [`${revocation.issuer}|${revocation.serial}`, revocation]));
    for (const session of this.#all) {
      const hit = revoked.get(`${session.peer.certIssuer}|${session.peer.certSerial}`);
      if (hit === undefined) continue;
      session.onRevoked(hit);
      this.#options.metrics.revokedAfterMs(Math.max(0, this.now() - hit.revokedAt));
    }
  }

  /** Tells every session to leave within the window, each in its own slot, before anything else is done (B37). */
  startDrain(windowMs: number, reason: string): void {
    this.#isDraining = true;
    sendSlots([...this.#all], { windowMs, reason });
  }

  endAll(): void {
    for (const session of this.#all) session.core.end('draining', session);
  }

  destroyAll(): void {
    for (const { stream } of this.#all) stream.destroy();
  }

  /** Writes out what is in memory: reports, presence, acks and results, how far commands are, ends. */
  async flush(): Promise<void> {
    await Promise.all([this.#presence.flush(), this.#recorder.drained(), this.#progress.flush(), ...this.#pendingEnds]);
  }

  close(): void {
    this.#presence.close();
  }

  /** A fleet has one issuer, or two: one string for all its sessions. */
  #withSharedIssuer(peer: SessionPeer): SessionPeer {
    if (peer.certIssuer !== this.#lastIssuer) this.#lastIssuer = peer.certIssuer;
    return { ...peer, certIssuer: this.#lastIssuer };
  }

  async #open(session: AgentSession, hello: HelloFacts): Promise<void> {
    const { store } = this.#options;
    const opened = await this.#opens(async () => {
      // It may have left while it waited.
      if (session.core.phase !== 'opening') return null;
      const row = openingRow(session, { hello, gatewayId: this.terms.gatewayId, now: this.now() });
      return this.database.watch(() => store.openSession(row));
    });
    if (opened === null) return;
    session.isRecorded = true;
    const trust = await this.#trust.fresh();
    if (session.core.phase !== 'opening') return this.#recordEnd(session);
    session.onOpened(opened, trust);
    this.#options.metrics.sessionOpened();
    this.#takeOver(session);
    // Published while this one was being opened.
    if (this.#trust.current !== null) session.onTrust(this.#trust.current);
    if (this.#isDraining) session.core.end('draining', session);
    this.#dispatcher.wake(session);
    void this.#relayDesiredState(session);
  }

  /** The newest session of a node is the one with the highest epoch, in whatever order the openings came back. */
  #takeOver(session: AgentSession): void {
    const earlier = this.#byNode.get(session.nodeId);
    if (earlier !== undefined && earlier !== session) {
      const older = earlier.epoch > session.epoch ? session : earlier;
      older.onFenced();
      if (older === session) return;
    }
    this.#byNode.set(session.nodeId, session);
  }

  async #relayDesiredState(session: AgentSession): Promise<void> {
    try {
      const state = await this.database.watch(() => this.#options.store.findDesiredState(session.nodeId));
      if (state !== null) session.onDesiredState(state);
    } catch (error) {
      this.#databaseFailed('desired-state', error);
    }
  }

  #broadcastTrust(trust: PublishedTrust): void {
    this.#options.onTrust?.(trust);
    inTurns(this.#all, (session) => session.onTrust(trust));
  }

  /** Cut off for long: nodes are sent away over a heartbeat and may find a gateway that is not. */
  #release(): void {
    const released = [...this.#all].filter((session) => session.core.phase === 'open');
    if (released.length === 0) return;
    this.#options.log.error(
      { sessions: released.length, awayForMs: this.database.awayForMs },
      'the database is away for too long: sessions are released',
    );
    sendSlots(released, { windowMs: this.terms.timing.heartbeatIntervalMs, reason: 'database-unavailable' });
  }

  #recordEnd(session: AgentSession): void {
    session.isRecorded = false;
    this.#options.metrics.sessionEnded(session.endReason);
    const ending = this.#ends(() => this.#options.store.endSession(session.id, session.endReason))
      .catch((error: unknown) => this.#databaseFailed('end-session', error))
      .finally(() => void this.#pendingEnds.delete(ending));
    this.#pendingEnds.add(ending);
  }

  #databaseFailed(what: string, error: unknown): void {
    this.#options.metrics.databaseFailed(what);
    this.#options.log.warn({ what, err: error }, 'the database did not answer');
  }
}
