/**
 * Tunnels through the gateway (TRN-008, TRN-040, TUN-001, TUN-003, TUN-010): a caller's stream and a machine's, spliced.
 *
 *   caller: Connect, ticket ─► judged ─► OpenTunnel on the node's session ─► machine: Tunnel, opened ─► bytes both ways
 *
 * Invariants: no OpenTunnel before the ticket was judged by the keys of the node's spec; a machine's stream is spliced only with the caller
 * whose ticket it was asked for, on the connection of that very session; after the first frame nothing is read or kept, and a side that
 * does not take bytes holds the other back. What a ticket allows the machine judges again; here it only keeps strangers from
 * asking machines anything.
 *
 * Threat model: callers show no certificate. Until a ticket is judged one costs a stream, 8 KiB and at most a read of the database, a few
 * of them at a time; whether a node is connected here, none of them learns.
 */
import { randomUUID } from 'node:crypto';
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import { tunnelLimits } from '../../domain/tunnels/limits.ts';
import { createTicketGuard, parseTicketKeys, ticketNodeOf, verifyExecTicket } from '../../pki/exec/verify.ts';
import {
  type AccessSpec,
  DesiredStateBodySchema,
  decodeMessage,
  encodeMessage,
  frameMessage,
  NodeSpecSchema,
  TunnelFrameSchema,
} from '../../proto/index.ts';
import { okTrailers } from '../grpc/metadata.ts';
import { refusal, toWireRefusal } from '../grpc/refusals.ts';
import { endStream, openResponse, refuseStream } from '../grpc/stream.ts';
import type { GatewayLog } from '../log.ts';
import type { GatewayMetrics } from '../metrics.ts';
import type { Scheduler } from '../scheduler.ts';
import type { ServerFrameInit } from '../session/contract.ts';
import type { DatabaseWatch } from '../session/database-watch.ts';
import { createLimiter } from '../session/limiter.ts';
import type { SessionStore, StoredDesiredState } from '../session/store.ts';
import type { SessionStream } from '../session/stream.ts';
import { readFirstFrame } from './first-frame.ts';

/** The part of a session that a tunnel needs. */
export interface TunnelSession {
  readonly nodeId: string;
  readonly stream: Pick<SessionStream, 'session' | 'once' | 'off'>;
  send(frame: ServerFrameInit): void;
}

export interface TunnelRelayOptions {
  readonly sessions: {
    readonly isDraining: boolean;
    readonly database: DatabaseWatch;
    find(nodeId: string): TunnelSession | undefined;
  };
  readonly store: Pick<SessionStore, 'findDesiredState'>;
  readonly scheduler: Scheduler;
  readonly random: () => number;
  readonly log: GatewayLog;
  readonly metrics: GatewayMetrics;
}

export const relayTunnelLimits = Object.freeze({
  /** Asked for and open, of this gateway. */
  inAll: 1_024,
  firstFrameWithinMs: 10_000,
  openWithinMs: tunnelLimits.openWithinMs,
  /** From the end of a tunnel to the end of its streams: a side that takes nothing would keep both. */
  endWithinMs: 5_000,
});

/** Asked of a machine that has not answered. */
interface Asked {
  readonly session: TunnelSession;
  opened(stream: ServerHttp2Stream): void;
}

interface Splice {
  readonly caller: ServerHttp2Stream;
  readonly machine: ServerHttp2Stream;
  readonly connection: ServerHttp2Session | undefined;
}

export class TunnelRelay {
  readonly #options: TunnelRelayOptions;
  readonly #guard = createTicketGuard();
  readonly #judging = createLimiter({ atATime: 4, maxWaiting: 64 });
  readonly #asked = new Map<string, Asked>();
  readonly #open = new Set<Splice>();

  constructor(options: TunnelRelayOptions) {
    this.#options = options;
  }

  /** How many are open. */
  get size(): number {
    return this.#open.size;
  }

  /** A caller's stream. It is over, and answered, when this resolves to false; never throws. */
  async connect(caller: ServerHttp2Stream): Promise<boolean> {
    const { scheduler, random, log, metrics } = this.#options;
    try {
      const first = await readFirstFrame(caller, { withinMs: relayTunnelLimits.firstFrameWithinMs, scheduler });
      if (first.case !== 'ticket') throw refusal('first-frame-not-ticket');
      const { ticket } = first.value;
      const session = await this.#judge(ticket);
      const tunnelId = randomUUID();
      const machine = await this.#ask(session, { tunnelId, ticket, caller });
      this.#splice({ caller, machine, connection: machine.session as ServerHttp2Session | undefined }, tunnelId);
      return true;
    } catch (error) {
      const wire = toWireRefusal(error, random);
      metrics.refused(wire.reason);
      if (wire.reason === 'internal') log.error({ err: error }, 'a tunnel failed');
      else log.debug({ reason: wire.reason, err: error }, 'a tunnel was refused');
      refuseStream(caller, wire);
      return false;
    }
  }

  /** A machine's stream, of a peer that was verified. Never throws. */
  async accept(machine: ServerHttp2Stream, nodeId: string): Promise<void> {
    const { scheduler, random, log } = this.#options;
    try {
      const first = await readFirstFrame(machine, { withinMs: relayTunnelLimits.firstFrameWithinMs, scheduler });
      const tunnelId = first.case === 'opened' ? first.value.tunnelId : '';
      const asked = this.#asked.get(tunnelId);
      // Another node, or this one by another connection than the one that was asked, was not asked.
      if (asked === undefined || asked.session.nodeId !== nodeId || asked.session.stream.session !== machine.session)
        throw refusal('no-such-tunnel');
      asked.opened(machine);
    } catch (error) {
      log.debug({ nodeId, err: error }, 'a machine opened a tunnel that nobody asked for');
      refuseStream(machine, toWireRefusal(error, random));
    }
  }

  /** The session of this connection is over: so are its tunnels. */
  endOf(connection: ServerHttp2Session | undefined): void {
    for (const splice of this.#open) if (splice.connection === connection) this.#end(splice);
  }

  endAll(): void {
    for (const splice of this.#open) this.#end(splice);
  }

  async #judge(ticket: string): Promise<TunnelSession> {
    const { sessions, store, scheduler } = this.#options;
    if (sessions.isDraining) throw refusal('draining');
    if (this.#open.size + this.#asked.size >= relayTunnelLimits.inAll) throw refusal('overloaded');
    const nodeId = ticketNodeOf(ticket);
    const session = nodeId === null ? undefined : sessions.find(nodeId);
    if (nodeId === null || session === undefined) throw refusal('ticket-refused');
    const access = await this.#judging(async () => accessOf(await sessions.database.watch(() => store.findDesiredState(nodeId))));
    try {
      const keys = parseTicketKeys(access?.jwks ?? []);
      verifyExecTicket(ticket, { keys, issuer: access?.ticketIssuer ?? '', nodeId, now: scheduler.now(), guard: this.#guard });
    } catch (cause) {
      throw refusal('ticket-refused', { cause });
    }
    // WS-028. Whoever holds a good ticket may know it.
    if (session.stream.session === undefined) {
      throw refusal('tunnel-not-opened', { message: 'the machine is connected over a WebSocket, which carries no tunnels' });
    }
    return session;
  }

  /** @throws tunnel-not-opened, when the machine opens nothing in time or the caller leaves */
  #ask(
    session: TunnelSession,
    { tunnelId, ticket, caller }: { readonly tunnelId: string; readonly ticket: string; readonly caller: ServerHttp2Stream },
  ): Promise<ServerHttp2Stream> {
    return new Promise((resolve, reject) => {
      const settle = (machine: ServerHttp2Stream | null): void => {
        late();
        this.#asked.delete(tunnelId);
        caller.off('close', gone);
        session.stream.off('close', gone);
        if (machine === null) reject(refusal('tunnel-not-opened'));
        else resolve(machine);
      };
      const gone = (): void => settle(null);
      const late = this.#options.scheduler.after(relayTunnelLimits.openWithinMs, gone);
      this.#asked.set(tunnelId, { session, opened: settle });
      caller.once('close', gone);
      session.stream.once('close', gone);
      session.send({ frame: { case: 'openTunnel', value: { tunnelId, ticket } } });
    });
  }

  #splice(splice: Splice, tunnelId: string): void {
    const { caller, machine } = splice;
    this.#open.add(splice);
    if (caller.destroyed || machine.destroyed) return this.#end(splice);
    const over = (): void => this.#end(splice);
    for (const stream of [caller, machine]) {
      openResponse(stream);
      stream.once('close', over);
      stream.once('end', over);
    }
    const opened = { frame: { case: 'opened', value: { tunnelId } } } as const;
    caller.write(frameMessage(encodeMessage(TunnelFrameSchema, opened, 'tunnelFrame'), Buffer.allocUnsafe));
    caller.pipe(machine, { end: false });
    machine.pipe(caller, { end: false });
  }

  /** What was passed on goes out first. */
  #end(splice: Splice): void {
    if (!this.#open.delete(splice)) return;
    const streams = [splice.caller, splice.machine];
    for (const stream of streams) {
      stream.unpipe();
      endStream(stream, okTrailers);
    }
    this.#options.scheduler.after(relayTunnelLimits.endWithinMs, () => {
      for (const stream of streams) stream.destroy();
    });
  }
}

/** As the database has it: the machine, which judges again, goes by what is signed. */
function accessOf(state: StoredDesiredState | null): AccessSpec | undefined {
  if (state === null) return undefined;
  const { spec } = decodeMessage(DesiredStateBodySchema, state.body, 'desiredStateBody');
  return decodeMessage(NodeSpecSchema, spec, 'desiredStateBody').access;
}
