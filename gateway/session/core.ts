/**
 * One session as a state machine: frames in, effects out. No I/O, no clock, no stream; the same code runs under the gateway
 * and under tests that feed it frame by frame.
 *
 *   hello → opening → open ⇄ draining → ended
 *
 * Invariants: the first frame is Hello and the first answer is Welcome (FRM-001, FRM-002); Welcome carries the published
 * trust bundle, when it is newer than the daemon's, before any command (ROT-026); nothing is sent once the session ended; a
 * frame case from a newer daemon is passed over (FRM-005); a session below our protocol range gets `daemon.upgrade` and
 * nothing else (SKEW-014).
 *
 * Threat model: the peer holds a valid certificate of its node and may otherwise do as it likes. It can end or stall its own
 * session; it can speak for no other node, because node id and epoch come from here, never from a frame (TRN-042).
 */
import { fromBinary } from '@bufbuild/protobuf';
import { type AgentFrame, isProtocolRange, negotiateProtocolVersion, SignatureSchema, type StatusReport } from '../../proto/index.ts';
import type { RefusalReason } from '../grpc/refusals.ts';
import { type BrokerFrame, isBrokerFrame } from './broker-relay.ts';
import { commandFrame } from './command-frame.ts';
import type { ReceivedFrame, SessionEffects, SessionTerms } from './contract.ts';
import { Delivery } from './delivery.ts';
import { ackRow, approverSet, progressRow, readHello, rejectRow, resultRow, safeCount, safeText, sectionsOf } from './read-frames.ts';
import type { CommandRejectRow, OpenedSession, PublishedTrust, QueuedCommand, StoredDesiredState } from './store.ts';
import { welcomeFrame } from './welcome.ts';

type Phase = 'hello' | 'opening' | 'open' | 'draining' | 'ended';

/** The one command a daemon below our protocol range may be sent. */
export const upgradeKind = 'daemon.upgrade';

/** Frames that may arrive between Hello and Welcome. */
const mostEarlyFrames = 32;

export class SessionCore {
  readonly nodeId: string;
  readonly #terms: SessionTerms;
  #phase: Phase = 'hello';
  #epoch = 0;
  #version = 0;
  #isRestricted = false;
  /** What the daemon said it holds. */
  #trustHeld = 0;
  /** What it was sent in this session; the same is not sent twice. */
  #trustSent = 0;
  #specHeld = 0;
  #since: number;
  #lastFrameAt: number;
  #early: ReceivedFrame[] | null = null;
  #delivery: Delivery | null = null;

  constructor(nodeId: string, terms: SessionTerms, now: number) {
    this.nodeId = nodeId;
    this.#terms = terms;
    this.#since = now;
    this.#lastFrameAt = now;
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** Generation of the desired state that the daemon holds, or was sent. */
  get specHeld(): number {
    return this.#specHeld;
  }

  /** 0 before the session is open. */
  get epoch(): number {
    return this.#epoch;
  }

  get lastFrameAt(): number {
    return this.#lastFrameAt;
  }

  /** Takes commands: open, and not on its way out (B38). */
  get isDeliverable(): boolean {
    return this.#phase === 'open';
  }

  /** Heartbeats may be answered without going through `onFrame`. */
  get takesHeartbeats(): boolean {
    return this.#phase === 'open' || this.#phase === 'draining';
  }

  onHeartbeat(now: number): void {
    this.#lastFrameAt = now;
  }

  /** @throws a refusal for a frame the protocol does not allow; the caller ends the stream with it */
  onFrame(frame: ReceivedFrame, now: number, fx: SessionEffects): void {
    this.#lastFrameAt = now;
    switch (this.#phase) {
      case 'ended':
        return;
      case 'hello':
        return this.#onHello(frame, fx);
      case 'opening':
        return this.#onEarly(frame, fx);
      case 'open':
      case 'draining':
        return this.#onOpenFrame(frame, now, fx);
    }
  }

  /** The session is recorded: Welcome, and what came early. */
  onOpened(
    opened: OpenedSession,
    { trust, now }: { readonly trust: PublishedTrust | null; readonly now: number },
    fx: SessionEffects,
  ): void {
    if (this.#phase !== 'opening') return;
    this.#phase = 'open';
    this.#epoch = opened.epoch;
    this.#sendWelcome(trust, now, fx);
    const early = this.#early ?? [];
    this.#early = null;
    for (const frame of early) this.onFrame(frame, now, fx);
  }

  /** The deployment publishes something else now: the open session hears of it at once (ROT-016). */
  onTrust(trust: PublishedTrust, now: number, fx: SessionEffects): void {
    if (this.#phase === 'open' && trust.version > Math.max(this.#trustHeld, this.#trustSent)) this.#sendWelcome(trust, now, fx);
  }

  onDesiredState(state: StoredDesiredState, fx: SessionEffects): void {
    if (this.#phase !== 'open' || this.#isRestricted || state.generation <= this.#specHeld) return;
    this.#specHeld = state.generation;
    fx.send({ frame: { case: 'desiredState', value: { body: state.body, signature: fromBinary(SignatureSchema, state.signature) } } });
  }

  onReceipts(commandIds: readonly string[], fx: SessionEffects): void {
    if (this.#phase !== 'open' && this.#phase !== 'draining') return;
    for (const commandId of commandIds) fx.send({ frame: { case: 'resultReceipt', value: { commandId } } });
  }

  /** RevocationNotice is the last frame (REV-013). */
  onRevoked(notice: { readonly serial: string; readonly reason: string; readonly revokedAt: number }, fx: SessionEffects): void {
    if (this.#phase === 'ended') return;
    if (this.#phase === 'open' || this.#phase === 'draining') {
      const { serial, reason } = notice;
      fx.send({ frame: { case: 'revocation', value: { serial, reason, revokedAtMs: BigInt(notice.revokedAt) } } });
    }
    this.end('revoked', fx);
  }

  /** The daemon is told first and keeps its session until it leaves or is ended (B37); it gets nothing new (B38). */
  onDrain(slot: { readonly afterMs: number; readonly windowMs: number; readonly reason: string }, fx: SessionEffects): void {
    if (this.#phase === 'open') fx.send({ frame: { case: 'drain', value: slot } });
    if (this.#phase === 'hello' || this.#phase === 'opening') return this.end('draining', fx);
    if (this.#phase === 'open') this.#phase = 'draining';
  }

  /** What time alone brings. */
  sweep(now: number, fx: SessionEffects): void {
    const { helloWithinMs, silentForMs } = this.#terms.timing;
    if (this.#phase === 'hello' && now - this.#since >= helloWithinMs) this.end('hello-deadline', fx);
    else if ((this.#phase === 'open' || this.#phase === 'draining') && now - this.#lastFrameAt >= silentForMs)
      this.end('heartbeat-lost', fx);
  }

  end(reason: RefusalReason, fx: SessionEffects): void {
    if (this.#phase === 'ended') return;
    this.#phase = 'ended';
    fx.end(reason);
  }

  /** The stream is gone: nothing is sent any more. */
  onClosed(): void {
    this.#phase = 'ended';
    this.#early = null;
    this.#delivery = null;
  }

  /** Where to read the log on; null when nothing may be sent. */
  readFrom(): number | null {
    if (!this.isDeliverable) return null;
    // Most sessions are given nothing for hours: what a delivery keeps is made with the first command.
    if (this.#delivery === null) return 0;
    this.#delivery.beginRead();
    return this.#delivery.readFrom();
  }

  /** Sends what may be sent of one read. @returns false when it stopped because `hasRoom` said so */
  deliver(
    commands: readonly QueuedCommand[],
    { now, hasRoom }: { readonly now: number; readonly hasRoom: () => boolean },
    fx: SessionEffects,
  ): boolean {
    if (!this.isDeliverable) return true;
    this.#delivery ??= new Delivery();
    const delivery = this.#delivery;
    const only = this.#isRestricted ? upgradeKind : null;
    let judgedTo = 0;
    for (const command of commands) {
      if (!hasRoom()) {
        delivery.endRead(judgedTo);
        return false;
      }
      if (delivery.judge(command, { now, only }) === 'send') this.#sendCommand(command, fx);
      judgedTo = command.seq;
    }
    delivery.endRead(judgedTo);
    return true;
  }

  outstanding(now: number): string[] {
    return this.#delivery?.outstanding(now) ?? [];
  }

  onCancelled(commandId: string, fx: SessionEffects): void {
    if (!this.isDeliverable || this.#delivery === null) return;
    if (this.#delivery.onEnd(commandId)) fx.wake();
    fx.send({ frame: { case: 'cancelCommand', value: { commandId, reason: 'cancelled' } } });
  }

  #onHello({ frame }: ReceivedFrame, fx: SessionEffects): void {
    if (frame.case !== 'hello') return this.end('first-frame-not-hello', fx);
    const hello = readHello(frame.value);
    if (!isProtocolRange(hello.protocol)) return this.end('invalid-protocol-range', fx);
    const negotiated = negotiateProtocolVersion(this.#terms.protocol, hello.protocol);
    if (negotiated.kind === 'gateway-too-old') return this.end('protocol-too-new', fx);
    this.#version = negotiated.version;
    this.#isRestricted = negotiated.kind === 'upgrade-required';
    this.#trustHeld = hello.trustVersion ?? 0;
    this.#specHeld = hello.specGeneration;
    this.#phase = 'opening';
    fx.open(hello);
  }

  #onEarly(frame: ReceivedFrame, fx: SessionEffects): void {
    this.#early ??= [];
    if (this.#early.push(frame) > mostEarlyFrames) this.end('overloaded', fx);
  }

  #onOpenFrame(message: ReceivedFrame, now: number, fx: SessionEffects): void {
    const { frame } = message;
    if (isBrokerFrame(frame)) return this.#onQuestion({ ...message, frame }, fx);
    switch (frame.case) {
      case 'heartbeat':
        return fx.send({ frame: { case: 'heartbeatAck', value: { sequence: frame.value.sequence, serverTimeMs: BigInt(now) } } });
      case 'commandAck':
      case 'commandReject':
      case 'commandResult':
      case 'commandProgress':
        return this.#onCommandSaid(frame, fx);
      case 'status':
        return this.#onStatus(frame.value, fx);
      case 'trustRefused':
        return fx.trustRefused(frame.value);
      case 'hello':
        return this.end('second-hello', fx);
      case undefined:
        return;
    }
  }

  #onQuestion({ frame, question }: ReceivedFrame & { readonly frame: BrokerFrame }, fx: SessionEffects): void {
    if (!this.#isRestricted) fx.ask(question === undefined ? frame : { ...frame, question });
  }

  #onCommandSaid(
    frame: Extract<AgentFrame['frame'], { case: 'commandAck' | 'commandReject' | 'commandResult' | 'commandProgress' }>,
    fx: SessionEffects,
  ): void {
    if (frame.case === 'commandProgress') return fx.progress(progressRow(this, frame.value));
    if (frame.case === 'commandReject') return this.#onReject(rejectRow(this, frame.value), fx);
    if (frame.case === 'commandAck') fx.ack(ackRow(this, frame.value));
    else fx.result(resultRow(this, frame.value));
    const { commandId } = frame.value;
    const madeRoom = frame.case === 'commandAck' ? this.#delivery?.onAck(commandId) : this.#delivery?.onEnd(commandId);
    if (madeRoom === true) fx.wake();
  }

  /** What was sent is known here: the daemon may name it by a body that says something else, or by its position alone. */
  #onReject(row: CommandRejectRow, fx: SessionEffects): void {
    const commandId = this.#delivery?.idAt(row.seq) ?? row.commandId;
    if (commandId !== '' || row.seq > 0) fx.reject({ ...row, commandId });
    if (this.#delivery?.onEnd(commandId) === true) fx.wake();
  }

  #onStatus(status: StatusReport, fx: SessionEffects): void {
    const version = safeCount(status.trustVersion, 'the trust version');
    const isRaised = version > this.#trustHeld;
    if (isRaised) this.#trustHeld = version;
    const { approverSetEpoch: epoch, approverSetSha256: sha256 } = approverSet(status);
    fx.report(
      {
        trustVersion: version === 0 ? null : version,
        ...(status.daemonVersion === '' ? {} : { daemonVersion: safeText(status.daemonVersion, 64) }),
        // LAG-004: without a version nobody can tell which of two reports is the newer one.
        ...(version === 0 ? {} : { approverSet: { version, epoch, sha256 } }),
        ...(status.specGeneration === 0n ? {} : { sections: sectionsOf(status) }),
      },
      isRaised,
    );
  }

  #sendWelcome(trust: PublishedTrust | null, now: number, fx: SessionEffects): void {
    const newer = trust !== null && trust.version > this.#trustHeld ? trust : null;
    if (newer !== null) this.#trustSent = newer.version;
    const { epoch } = this;
    fx.send(welcomeFrame(this.#terms, { protocolVersion: this.#version, upgradeRequired: this.#isRestricted, epoch, trust: newer, now }));
  }

  /** One that no frame can carry ends here, with its reason: it must not be read again in every session. */
  #sendCommand(command: QueuedCommand, fx: SessionEffects): void {
    const frame = commandFrame(command, this.#epoch);
    if (frame !== undefined) return fx.send(frame);
    const { nodeId, epoch } = this;
    const detail = 'the stored command cannot be sent';
    this.#onReject({ nodeId, epoch, commandId: command.id, seq: command.seq, reason: 'malformed', detail }, fx);
  }
}
