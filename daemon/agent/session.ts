/**
 * What one welcomed session means to the daemon: frames in, decisions out. All state that outlives the session is the agent's
 * (AgentState); two sessions may overlap while a gateway drains, and the newer epoch wins.
 */

import { fromBinary } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import {
  type Command,
  CommandRejectReason,
  CommandResultSchema,
  type DesiredState,
  type Drain,
  type EventReport,
  PROTOCOL_VERSION,
  type RevocationNotice,
  type SecretRequest,
  type ServerFrame,
  type SignedTrustBundle,
  type Welcome,
  type WorkloadTokenRequest,
} from '../../proto/index.ts';
import { reasonOf } from '../reason.ts';
import type { SessionStream } from '../transport/session-stream.ts';
import { type Admission, type AdmittedCommand, admitCommand } from './admission.ts';
import type { AgentState } from './agent-state.ts';
import { judgeDesiredState, noSpec, statusIntervalMs } from './desired-state.ts';
import { statusOf } from './reports.ts';

/** Above this a number of the control plane's is no longer exact. */
const epochMax = 2n ** 52n;
/** An epoch goes up by one a session; a gateway that leaps would shut out every honest one behind it for good. */
const epochStepMax = 1_000_000n;

/** Commands that found their lane full; more than this is a gateway that ignores the windows. */
const heldBackMax = 64;
/** A result whose receipt did not come is sent again after this. */
const resendAfterMs = 60_000;

export interface SessionFacts {
  readonly gatewayId: string;
  readonly epoch: bigint;
  readonly reconnectWindowMs: number;
  readonly welcomedAtSteadyMs: number;
}

export interface SessionEvents {
  onWelcomed(session: AgentSession): void;
  /** Dial again within [afterMs, afterMs + windowMs]; this session goes on meanwhile. */
  onDrain(order: { afterMs: number; windowMs: number; reason: string }): void;
}

type FrameCase = NonNullable<ServerFrame['frame']['case']>;
type FrameHandlers = { readonly [C in FrameCase]: (value: Extract<ServerFrame['frame'], { case: C }>['value']) => Promise<void> | void };

export class AgentSession {
  readonly #state: AgentState;
  readonly #events: SessionEvents;
  readonly #heldBack: Command[] = [];
  readonly #sentAtSteadyMs = new Map<string, number>();
  readonly #beats = new Map<bigint, number>();
  readonly #helloAtSteadyMs: number;
  readonly #handlers: FrameHandlers = {
    welcome: (welcome) => this.#onWelcome(welcome),
    command: (command) => this.#onCommand(command),
    desiredState: (desired) => this.#onDesiredState(desired),
    resultReceipt: ({ commandId }) => this.#onReceipt(commandId),
    heartbeatAck: (ack) => this.#onHeartbeatAck(ack),
    drain: (order) => this.#onDrain(order),
    revocation: (notice) => this.#onRevocation(notice),
    cancelCommand: ({ commandId, reason }) => this.#state.executor.cancel(commandId, reason),
    workloadTokenResponse: (response) => this.#state.workloadTokens?.onResponse(this, response),
    eventReceipt: (receipt) => this.#state.events?.onResponse(this, receipt),
    secretResponse: (response) => this.#state.secrets?.onResponse(this, response),
    // Where no tunnels are let in, nothing is opened, and the gateway's time runs out (TUN-010).
    openTunnel: (order) => this.#state.tunnels?.onOpen(order, () => this.#stream?.requestTunnel()),
  };
  #stream: SessionStream | undefined;
  #facts: SessionFacts | undefined;
  #upgradeRequired = false;
  #statusAtSteadyMs = 0;

  constructor(state: AgentState, events: SessionEvents) {
    this.#state = state;
    this.#events = events;
    this.#helloAtSteadyMs = state.clock.steadyMs();
  }

  /** undefined before Welcome. */
  get facts(): SessionFacts | undefined {
    return this.#facts;
  }

  async onFrame({ frame }: ServerFrame, stream: SessionStream): Promise<void> {
    this.#stream = stream;
    if (this.#facts === undefined && frame.case !== 'welcome') {
      throw new ControlError('MALFORMED', `the first frame was ${frame.case ?? 'of an unknown kind'}, not welcome`, {
        details: { reason: 'first-frame-not-welcome' },
      });
    }
    // A newer gateway's frame is passed over: nothing here depends on it.
    if (frame.case === undefined) return;
    const handle: (value: never) => Promise<void> | void = this.#handlers[frame.case];
    await handle(frame.value as never);
  }

  /** Also sent again in mid-session, with a newer bundle. */
  async #onWelcome(welcome: Welcome): Promise<void> {
    const state = this.#state;
    const isFirst = this.#facts === undefined;
    state.clock.observe({ serverTimeMs: Number(welcome.serverTimeMs), sentAtSteadyMs: isFirst ? this.#helloAtSteadyMs : null });
    if (isFirst) await this.#begin(welcome);
    if (welcome.trust !== undefined) await this.#onTrust(welcome.trust);
    if (!isFirst) return;
    this.sendStatus();
    this.#stream?.startHeartbeat(welcome.heartbeatIntervalMs);
    this.#events.onWelcomed(this);
    state.takeUp();
    this.sendResults();
  }

  async #begin(welcome: Welcome): Promise<void> {
    const state = this.#state;
    assertPlausibleEpoch(welcome.epoch, state.marks.current.epoch);
    const { min, max } = PROTOCOL_VERSION;
    this.#upgradeRequired = welcome.upgradeRequired;
    if (!welcome.upgradeRequired && (welcome.protocolVersion < min || welcome.protocolVersion > max)) {
      throw new ControlError(
        'UNSUPPORTED',
        `the gateway chose protocol version ${welcome.protocolVersion}, this daemon speaks ${min} to ${max}`,
        { details: { reason: 'protocol-version' } },
      );
    }
    if (welcome.epoch < state.marks.current.epoch) {
      state.refused(
        'stale-epoch',
        `the gateway welcomed us in epoch ${welcome.epoch}, this daemon has seen ${state.marks.current.epoch}: its commands are refused`,
      );
    }
    // Durable before a command of this session can be accepted: an older gateway is shut out from here on.
    await state.marks.raise({ epoch: welcome.epoch });
    this.#facts = {
      gatewayId: welcome.gatewayId,
      epoch: welcome.epoch,
      reconnectWindowMs: welcome.reconnectWindowMs,
      welcomedAtSteadyMs: state.clock.steadyMs(),
    };
    if (welcome.upgradeRequired)
      state.log.warn({ gatewayId: welcome.gatewayId }, 'the gateway no longer speaks this daemon’s protocol: replace the program');
  }

  async #onTrust(signed: SignedTrustBundle): Promise<void> {
    const offer = await this.#state.offerTrust(signed);
    if (offer.kind === 'taken') return this.sendStatus();
    if (offer.kind === 'known') return;
    const heldVersion = BigInt(this.#state.held().version);
    this.#state.refused(`trust-${offer.reason}`, offer.detail);
    this.#send({
      frame: {
        case: 'trustRefused',
        value: { offeredVersion: offer.offeredVersion, heldVersion, reason: offer.reason, detail: offer.detail },
      },
    });
  }

  #onCommand(command: Command): Promise<void> {
    return this.#state.inAdmissionOrder(() => this.#admit(command));
  }

  async #admit(command: Command): Promise<void> {
    const state = this.#state;
    const admission = admitCommand(state.admission(this.#upgradeRequired), command, state.clock.now());
    switch (admission.kind) {
      case 'reject':
        return this.#reject(admission);
      case 'duplicate':
        this.#ack(admission.id, { seq: command.seq, digest: admission.digest });
        return this.sendResult(admission.id);
      case 'accept':
        if (!state.executor.hasRoom(admission.command)) return this.#holdBack(command);
        return this.#accept(admission.command);
    }
  }

  async #accept(command: AdmittedCommand): Promise<void> {
    const { id, seq, digest } = command;
    const refused = await this.#state.accept(command, () => this.#ack(id, { seq, digest }));
    if (refused !== null) this.#reject({ id, seq, reason: refused.reject, detail: refused.detail });
  }

  #reject({ id, seq, reason, detail }: Omit<Extract<Admission, { kind: 'reject' }>, 'kind'>): void {
    this.#state.refused(`command-${CommandRejectReason[reason].toLowerCase().replaceAll('_', '-')}`, detail, id);
    this.#send({ frame: { case: 'commandReject', value: { commandId: id, seq, reason, detail } } });
  }

  /** Unacknowledged, so the gateway sends no more in this lane; judged again when there is room. */
  #holdBack(command: Command): void {
    if (this.#heldBack.length >= heldBackMax) {
      throw new ControlError('RATE_LIMITED', `the gateway sent more than ${heldBackMax} commands beyond its windows`, {
        details: { reason: 'window-ignored' },
      });
    }
    this.#heldBack.push(command);
  }

  /** A command ended: there may be room. */
  async admitHeldBack(): Promise<void> {
    for (const command of this.#heldBack.splice(0)) await this.#onCommand(command);
  }

  async #onReceipt(commandId: string): Promise<void> {
    this.#sentAtSteadyMs.delete(commandId);
    await this.#state.receipted(commandId);
  }

  async #onHeartbeatAck({ sequence, serverTimeMs }: { sequence: bigint; serverTimeMs: bigint }): Promise<void> {
    const sentAtSteadyMs = this.#beats.get(sequence) ?? null;
    if (sentAtSteadyMs === null) return;
    for (const earlier of this.#beats.keys()) if (earlier <= sequence) this.#beats.delete(earlier);
    this.#state.clock.observe({ serverTimeMs: Number(serverTimeMs), sentAtSteadyMs });
    this.#stream?.heartbeatAnswered(sequence);
    await this.#state.housekeeping();
  }

  async #onDesiredState(desired: DesiredState): Promise<void> {
    const state = this.#state;
    try {
      const at = { held: state.held(), nodeId: state.identity.nodeId, now: state.clock.now() };
      const next = this.#upgradeRequired ? undefined : judgeDesiredState(state.spec.current ?? noSpec, desired, at);
      if (next === undefined) return;
      await state.spec.save(next);
      state.log.info({ generation: next.generation.toString() }, 'desired state taken');
      this.sendStatus();
    } catch (error) {
      if (!(error instanceof ControlError)) throw error;
      state.refused(`desired-state-${reasonOf(error)}`, error.message);
    }
  }

  #onDrain({ afterMs, windowMs, reason }: Drain): void {
    this.#state.log.info({ afterMs, windowMs, reason }, 'the gateway is going away');
    this.#events.onDrain({ afterMs, windowMs, reason });
  }

  #onRevocation({ serial, reason }: RevocationNotice): void {
    const detail = `certificate ${serial} was revoked${reason === '' ? '' : `: ${reason}`}`;
    this.#state.log.error({ serial, reason }, 'this node was revoked');
    this.#state.failed('revoked', detail);
  }

  /** Everything finished and not confirmed. */
  sendResults(): void {
    for (const { id } of this.#state.journal.unconfirmed()) this.sendResult(id);
  }

  sendResult(id: string): void {
    const entry = this.#state.journal.find(id);
    if (entry?.state !== 'finished' && entry?.state !== 'receipted') return;
    const sent = this.#send({ frame: { case: 'commandResult', value: fromBinary(CommandResultSchema, entry.result) } });
    if (!sent) return;
    if (entry.state === 'finished') this.#sentAtSteadyMs.set(id, this.#state.clock.steadyMs());
    this.#state.crash('after-result-sent');
  }

  #resendLateResults(): void {
    const now = this.#state.clock.steadyMs();
    for (const [id, sentAt] of this.#sentAtSteadyMs) if (now - sentAt > resendAfterMs) this.sendResult(id);
  }

  /** ROT-016: also right after a bundle was taken, so that no gate waits for a reconnect. */
  sendStatus(): void {
    this.#statusAtSteadyMs = this.#state.clock.steadyMs();
    this.#send({ frame: { case: 'status', value: statusOf(this.#state) } });
  }

  progress(report: { id: string; done: number; total: number; note: string }): void {
    this.#send({
      frame: {
        case: 'commandProgress',
        value: { commandId: report.id, done: BigInt(Math.round(report.done)), total: BigInt(Math.round(report.total)), note: report.note },
      },
    });
  }

  /** False when the stream takes nothing more. */
  sendSecretRequest(value: SecretRequest): boolean {
    return this.#send({ frame: { case: 'secretRequest', value } });
  }

  /** False when the stream takes nothing more. */
  sendWorkloadTokenRequest(value: WorkloadTokenRequest): boolean {
    return this.#send({ frame: { case: 'workloadTokenRequest', value } });
  }

  /** False when the stream takes nothing more. */
  sendEventReport(value: EventReport): boolean {
    return this.#send({ frame: { case: 'eventReport', value } });
  }

  /** The beat of the stream; results whose receipt is late go out with it, and a status report that is due. */
  heartbeat(sequence: bigint) {
    const now = this.#state.clock.steadyMs();
    this.#beats.set(sequence, now);
    if (now - this.#statusAtSteadyMs >= statusIntervalMs(this.#state.spec.current)) this.sendStatus();
    this.#resendLateResults();
    return { frame: { case: 'heartbeat' as const, value: { sequence, timeMs: BigInt(this.#state.wallMs()) } } };
  }

  #ack(commandId: string, { seq, digest }: { seq: bigint; digest: string }): void {
    this.#send({ frame: { case: 'commandAck', value: { commandId, seq, bodySha256: Buffer.from(digest, 'hex') } } });
    this.#state.crash('after-ack');
  }

  #send(frame: Parameters<SessionStream['send']>[0]): boolean {
    return this.#stream?.send(frame) ?? false;
  }
}

function assertPlausibleEpoch(epoch: bigint, seen: bigint): void {
  // A new identity has seen none and takes the deployment's count as it is.
  if (epoch <= epochMax && (seen === 0n || epoch <= seen + epochStepMax)) return;
  throw new ControlError('MALFORMED', `the gateway welcomed us in epoch ${epoch}, which cannot follow ${seen}`, {
    details: { reason: 'implausible-epoch' },
  });
}
