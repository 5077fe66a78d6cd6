/**
 * Every HTTP/2 connection and how long it may live without being useful: one small object and one set entry each, one timer
 * for all of them.
 *
 * Rules, each against a peer that costs and gives nothing:
 * - a connection without a session or a running call for 10 s is closed (B03): TLS and then silence, or SETTINGS only;
 * - a PING every 20 s by our own clock, for a peer that stopped answers none and Node tells nobody; two in a row without an
 *   answer close the connection (TRN-009);
 * - streams that end without an answer, and streams we refuse, use up a budget that refills slowly; nghttp2's own limiter
 *   comes far later and would take the session stream beside it down (B14).
 */
import { constants, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import type { Scheduler } from '../scheduler.ts';

export const connectionLimits = Object.freeze({
  quietMs: 10_000,
  pingEveryMs: 20_000,
  unansweredPings: 2,
  resetBudget: 50,
  resetRefillMs: 1_000,
  /** From the end of a session to the end of its socket. */
  destroyedMs: 2_000,
});

const pingPayload = Buffer.from('bcgwping');

export class Connection {
  readonly session: ServerHttp2Session;
  readonly #socket: TLSSocket;
  #destroyedAt = 0;
  /** On its way out: streams that still arrive are given nothing. */
  isCut = false;
  /** Since when nothing useful runs on it; 0 while something does. */
  #quietSince: number;
  #busy = 0;
  #nextPingAt: number;
  #unanswered = 0;
  #resets = 0;
  #refilledAt: number;

  constructor(
    session: ServerHttp2Session,
    socket: TLSSocket,
    { now, firstPingInMs }: { readonly now: number; readonly firstPingInMs: number },
  ) {
    this.session = session;
    this.#socket = socket;
    this.#quietSince = now;
    this.#refilledAt = now;
    this.#nextPingAt = now + firstPingInMs;
  }

  /** A call or a session begins to be useful. */
  begin(): void {
    this.#busy += 1;
    this.#quietSince = 0;
  }

  end(now: number): void {
    this.#busy -= 1;
    if (this.#busy === 0) this.#quietSince = now;
  }

  /** Counts a stream that was given up or refused; false when the budget is used up. */
  countReset(now: number): boolean {
    const refilled = Math.floor((now - this.#refilledAt) / connectionLimits.resetRefillMs);
    if (refilled > 0) {
      this.#resets = Math.max(0, this.#resets - refilled);
      this.#refilledAt += refilled * connectionLimits.resetRefillMs;
    }
    this.#resets += 1;
    return this.#resets <= connectionLimits.resetBudget;
  }

  /** What is due now: null, or why the connection ends. */
  sweep(now: number): 'quiet' | 'no-pong' | null {
    if (this.session.destroyed) return this.#sweepDestroyed(now);
    if (this.#quietSince !== 0 && now - this.#quietSince >= connectionLimits.quietMs) return 'quiet';
    if (now < this.#nextPingAt) return null;
    if (this.#unanswered >= connectionLimits.unansweredPings) return 'no-pong';
    this.#nextPingAt = now + connectionLimits.pingEveryMs;
    this.#unanswered += 1;
    if (!this.session.destroyed) this.session.ping(pingPayload, (error) => this.#onPong(error));
    return null;
  }

  /**
   * A destroyed session waits for its last write, for ever when the peer takes none (B06): its socket, and with it every
   * stream and session object, would stay.
   */
  #sweepDestroyed(now: number): null {
    if (this.#destroyedAt === 0) this.#destroyedAt = now;
    else if (now - this.#destroyedAt >= connectionLimits.destroyedMs) this.#socket.destroy();
    return null;
  }

  /** At once, whatever is still to be written. */
  destroy(): void {
    this.session.destroy();
    this.#socket.destroy();
  }

  /** Ends everything on it at once, telling the peer why. */
  cut(code: number = constants.NGHTTP2_NO_ERROR): void {
    if (this.isCut || this.session.destroyed) return;
    this.isCut = true;
    this.session.goaway(code);
    // One turn later: the frame goes out first.
    setImmediate(() => this.session.destroy());
  }

  #onPong(error: Error | null): void {
    if (error === null) this.#unanswered = 0;
  }
}

const connectionOf = Symbol('connection');

interface WithConnection {
  [connectionOf]?: Connection;
}

export interface ConnectionTableOptions {
  readonly scheduler: Scheduler;
  readonly random: () => number;
  onCut?(why: 'quiet' | 'no-pong' | 'resets'): void;
}

export class ConnectionTable {
  readonly #options: ConnectionTableOptions;
  readonly #all = new Set<Connection>();

  constructor(options: ConnectionTableOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#all.size;
  }

  add(session: ServerHttp2Session, socket: TLSSocket): Connection {
    const { scheduler, random } = this.#options;
    const firstPingInMs = connectionLimits.pingEveryMs * (0.5 + random() / 2);
    const connection = new Connection(session, socket, { now: scheduler.now(), firstPingInMs });
    (session as WithConnection)[connectionOf] = connection;
    this.#all.add(connection);
    return connection;
  }

  /** null for one that was never added; a stream keeps its connection past its own end. */
  find(of: ServerHttp2Session | ServerHttp2Stream): Connection | null {
    return (of as WithConnection)[connectionOf] ?? null;
  }

  /** null when the connection of a new stream is gone already. */
  attach(stream: ServerHttp2Stream): Connection | null {
    const connection = (stream.session as WithConnection | undefined)?.[connectionOf] ?? null;
    if (connection !== null) (stream as WithConnection)[connectionOf] = connection;
    return connection;
  }

  remove(session: ServerHttp2Session): void {
    const connection = this.find(session);
    if (connection !== null) this.#all.delete(connection);
  }

  /** A stream of this connection was refused or given up; a connection that does it too often is cut. */
  countReset(connection: Connection): void {
    if (connection.isCut || connection.countReset(this.#options.scheduler.now())) return;
    this.#options.onCut?.('resets');
    connection.cut(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  /** Called each second. */
  sweep(): void {
    const now = this.#options.scheduler.now();
    for (const connection of this.#all) {
      const why = connection.sweep(now);
      if (why === null) continue;
      this.#options.onCut?.(why);
      if (why === 'no-pong') connection.destroy();
      else connection.cut();
    }
  }

  /** Says goodbye on every connection; running streams stay. */
  goaway(): void {
    for (const { session } of this.#all) if (!session.destroyed) session.goaway(constants.NGHTTP2_NO_ERROR);
  }

  destroyAll(): void {
    for (const connection of this.#all) connection.destroy();
  }
}
