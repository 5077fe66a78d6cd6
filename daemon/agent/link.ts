/**
 * Keeps the daemon connected: dial, session, wait, dial again, until it is stopped or must be parked.
 *
 * When the gateway announces its end (Drain, GOAWAY), the next session is opened while the old one still works, and the old one is
 * closed when the new one is welcomed. A refusal that no redial can cure (expired, revoked, superseded identity) parks the link: it
 * says what to do and does not hammer the gateway. Being superseded by a newer session is never fatal (B51).
 */
import { ControlError, codeOf, isControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import type { StatusSink } from '../state/status-file.ts';
import { type BackoffLimits, type BackoffState, backoffLimits, freshBackoff, nextDial } from '../transport/backoff.ts';
import { refusalFacts } from '../transport/grpc-status.ts';
import type { ClientIdentity } from '../transport/pinned-connection.ts';
import { SessionStream, type SessionTiming, sessionTiming } from '../transport/session-stream.ts';
import type { GatewayRoute } from '../transport/wire.ts';
import type { AgentState } from './agent-state.ts';
import { helloOf } from './reports.ts';
import { AgentSession } from './session.ts';

export interface LinkPorts {
  readonly state: AgentState;
  readonly readBootId: () => Promise<string>;
  readonly clientIdentity: () => ClientIdentity;
  readonly route: GatewayRoute;
  readonly status: StatusSink;
  readonly random: () => number;
  readonly timing?: SessionTiming;
  readonly dialWithinMs?: number;
  readonly limits?: BackoffLimits;
}

export type LinkEnd = { readonly kind: 'stopped' } | { readonly kind: 'parked'; readonly error: ControlError };

/** How one connection ended, or why the next one is wanted while it still works. */
type Passage =
  | { readonly kind: 'ended'; readonly error: ControlError | null; readonly heldMs: number; readonly session: AgentSession | undefined }
  | { readonly kind: 'leave'; readonly heldMs: number; readonly session: AgentSession };

const incurable = new Set(['revoked', 'client-certificate-expired', 'certificate-expired', 'generation-superseded', 'node-not-active']);

/** Refusals by the gateway that another dial with the same identity cannot change. */
export const mustPark = (error: unknown): error is ControlError =>
  isControlError(error) && incurable.has(refusalFacts(error).reason) && refusalFacts(error).grpc !== 0;

export class Link {
  readonly #ports: LinkPorts;
  readonly #stop = new AbortController();
  readonly #streams = new Map<AgentSession, SessionStream>();
  #current: AgentSession | undefined;
  #wakeUp: (() => void) | undefined;
  #leave: (() => void) | undefined;
  #drainUntilSteadyMs: number | undefined;

  constructor(ports: LinkPorts) {
    this.#ports = ports;
  }

  /** The newest welcomed session. */
  get current(): AgentSession | undefined {
    return this.#current;
  }

  /** Opens another session beside the current one and changes over: after a renewal, so that the new certificate is used. */
  refresh(): void {
    this.#leave?.();
  }

  stop(): void {
    this.#stop.abort();
    this.#wakeUp?.();
    this.#leave?.();
    for (const stream of this.#streams.values()) stream.close();
  }

  async run(): Promise<LinkEnd> {
    let backoff: BackoffState = freshBackoff;
    while (!this.#isStopped) {
      const passage = await this.#pass();
      if (this.#isStopped) break;
      if (passage.kind === 'ended' && mustPark(passage.error)) return { kind: 'parked', error: passage.error };
      const next = this.#next(backoff, passage);
      backoff = next.state;
      this.#tell(passage, next.delayMs);
      await this.#wait(next.delayMs);
    }
    return { kind: 'stopped' };
  }

  #next(backoff: BackoffState, passage: Passage): { state: BackoffState; delayMs: number } {
    const { random, limits = backoffLimits } = this.#ports;
    const pushbackMs = passage.kind === 'ended' ? refusalFacts(passage.error).pushbackMs : null;
    const reconnectWindowMs = passage.session?.facts?.reconnectWindowMs ?? 0;
    const next = nextDial(backoff, { heldMs: passage.heldMs, pushbackMs, reconnectWindowMs }, { random, limits });
    // A gateway that asks us to leave is still serving: the next one is dialled at once, the herd is spread by its window. One
    // that asks each time anew is no such gateway.
    const isFirst = backoff.failures === 0 || passage.heldMs >= limits.heldMs;
    return { state: next.state, delayMs: passage.kind === 'leave' && isFirst ? 0 : this.#withinDrain(next.delayMs) };
  }

  get #isStopped(): boolean {
    return this.#stop.signal.aborted;
  }

  async #pass(): Promise<Passage> {
    const { state } = this.#ports;
    let session: AgentSession | undefined;
    const heldMs = (): number => (session?.facts === undefined ? 0 : state.clock.steadyMs() - session.facts.welcomedAtSteadyMs);
    try {
      const { stream, session: opened } = await this.#open();
      session = opened;
      const leave = new Promise<'leave'>((resolve) => {
        this.#leave = () => resolve('leave');
        void stream.goingAway.then(() => resolve('leave'));
      });
      const first = await Promise.race([stream.ended, leave]);
      if (first !== 'leave') return { kind: 'ended', error: first, heldMs: heldMs(), session };
      return opened.facts === undefined
        ? { kind: 'ended', error: await stream.ended, heldMs: 0, session }
        : { kind: 'leave', heldMs: heldMs(), session: opened };
    } catch (error) {
      return { kind: 'ended', error: asControlError(error), heldMs: heldMs(), session };
    } finally {
      this.#leave = undefined;
    }
  }

  async #open(): Promise<{ stream: SessionStream; session: AgentSession }> {
    const { state, timing = sessionTiming, dialWithinMs = 15 * second } = this.#ports;
    const { route } = this.#ports;
    if (this.#current === undefined)
      this.#ports.status.update({ state: 'connecting', stateDetail: `dialling ${route.shown(state.identity)}`, nextDialAtMs: null });
    const wire = await route.openSession({
      identity: state.identity,
      client: this.#ports.clientIdentity(),
      commandRoots: state.held().roots.length,
      now: state.clock.now(),
      timeoutMs: dialWithinMs,
      signal: this.#stop.signal,
    });
    const hello = helloOf(state, await this.#ports.readBootId());
    const session: AgentSession = new AgentSession(state, {
      onWelcomed: (welcomed) => this.#welcomed(welcomed),
      onDrain: (order) => {
        if (session === this.#current) this.#drain(order);
      },
    });
    const stream = new SessionStream(wire, {
      hello: { frame: { case: 'hello', value: hello } },
      timing,
      random: this.#ports.random,
      onFrame: (frame, from) => session.onFrame(frame, from),
      heartbeat: (sequence) => session.heartbeat(sequence),
    });
    this.#streams.set(session, stream);
    // Stopped while it was being dialled.
    if (this.#isStopped) stream.close();
    void stream.ended.then((error) => this.#ended(session, error));
    return { stream, session };
  }

  #welcomed(session: AgentSession): void {
    // It ended while its welcome was being made durable.
    if (!this.#streams.has(session)) return;
    const { state, status } = this.#ports;
    const former = this.#current;
    this.#current = session;
    this.#drainUntilSteadyMs = undefined;
    const { gatewayId, epoch } = session.facts ?? { gatewayId: '', epoch: 0n };
    state.log.info({ gatewayId, epoch: epoch.toString(), trustVersion: state.held().version }, 'connected');
    status.update({
      state: 'connected',
      stateDetail: `session with ${gatewayId}`,
      gatewayId,
      epoch: epoch.toString(),
      connectedSinceMs: state.clock.now(),
      clockOffsetMs: state.clock.offsetMs(),
      nextDialAtMs: null,
    });
    state.secrets?.onWelcomed(session);
    state.workloadTokens?.onWelcomed(session);
    state.events?.onWelcomed(session);
    if (former !== undefined && former !== session) this.#streams.get(former)?.close();
  }

  #ended(session: AgentSession, error: ControlError | null): void {
    this.#streams.delete(session);
    this.#ports.state.secrets?.onEnded(session);
    this.#ports.state.workloadTokens?.onEnded(session);
    this.#ports.state.events?.onEnded(session);
    if (this.#current !== session) return;
    this.#current = undefined;
    if (error === null || this.#isStopped) return;
    this.#ports.status.update({ gatewayId: null, connectedSinceMs: null });
  }

  #drain({ afterMs, windowMs }: { afterMs: number; windowMs: number }): void {
    const { state, random, limits = backoffLimits } = this.#ports;
    const delayMs = Math.min(afterMs + windowMs * random(), limits.pushbackCapMs);
    this.#drainUntilSteadyMs = state.clock.steadyMs() + delayMs;
    const leave = this.#leave;
    // Nothing to hold on to: a session that ended before then has its slot in #withinDrain.
    setTimeout(() => leave?.(), delayMs).unref();
  }

  /** A session that ended before its slot came: the slot still counts. */
  #withinDrain(delayMs: number): number {
    if (this.#drainUntilSteadyMs === undefined) return delayMs;
    const slotMs = Math.max(0, this.#drainUntilSteadyMs - this.#ports.state.clock.steadyMs());
    this.#drainUntilSteadyMs = undefined;
    return slotMs;
  }

  #tell(passage: Passage, delayMs: number): void {
    const { state, status } = this.#ports;
    if (passage.kind === 'leave') return;
    const { error } = passage;
    const { reason } = refusalFacts(error);
    const detail = error?.message ?? 'the session was closed';
    state.log.warn({ reason, code: codeOf(error), detail, delayMs }, 'not connected');
    state.failed(reason === '' ? codeOf(error).toLowerCase() : reason, detail);
    if (this.#current !== undefined) return;
    status.update({
      state: 'waiting',
      stateDetail: detail,
      gatewayId: null,
      connectedSinceMs: null,
      nextDialAtMs: state.wallMs() + delayMs,
    });
  }

  #wait(delayMs: number): Promise<void> {
    if (delayMs <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, delayMs);
      this.#wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

const asControlError = (error: unknown): ControlError =>
  isControlError(error)
    ? error
    : new ControlError('INTERNAL', error instanceof Error ? error.message : String(error), {
        cause: error,
        details: { reason: 'dial-fault' },
      });
