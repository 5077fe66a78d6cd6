/**
 * The I/O around one session's state machine: a stream, a reader, and nothing that is made anew per frame. The object is the
 * only thing the gateway keeps of a session; its handlers are shared by all (measured: closures per session are what makes
 * idle sessions expensive).
 *
 * Threat model of this file: a peer that never reads, one that reads a little, one that sends without end. Commands wait
 * while the stream is backed up, everything else ends the session above the send budget (outbound.ts), a stream that moves
 * no byte for too long is cut, and a peer that floods is read from more slowly.
 */
import { isControlError } from '../../domain/errors.ts';
import {
  AgentFrameSchema,
  bounds,
  decodeMessage,
  frameMessage,
  MessageReader,
  ProtocolError,
  type TrustRefused,
} from '../../proto/index.ts';
import { prefixRefusal, type RefusalReason, refusal, toWireRefusal } from '../grpc/refusals.ts';
import { type AskingSession, type BrokerQuestion, withQuestion } from './broker-relay.ts';
import type { ReceivedFrame, ServerFrameInit, SessionEffects, SessionHost, SessionPeer } from './contract.ts';
import { SessionCore } from './core.ts';
import type { DispatchSession } from './dispatcher.ts';
import { answerHeartbeat } from './heartbeat.ts';
import { Outbound } from './outbound.ts';
import { mergeReports, type PresentSession, type SessionReport } from './presence.ts';
import type { HelloFacts } from './read-frames.ts';
import type { RecordingSession } from './recorder.ts';
import type {
  CommandAckRow,
  CommandProgressRow,
  CommandRejectRow,
  CommandResultRow,
  OpenedSession,
  PublishedTrust,
  QueuedCommand,
  StoredDesiredState,
} from './store.ts';
import type { SessionStream, SessionTransport } from './stream.ts';
import type { StreamTarget } from './stream-events.ts';

export const sessionLimits = Object.freeze({
  /** Frames between two sweeps (one second) before the peer is made to wait. */
  framesPerSweep: 5_000,
  /** From trailers to the end of the stream. */
  endWithinMs: 5_000,
});

type PauseReason = 'opening' | 'recorder' | 'flood';

export class AgentSession implements SessionEffects, StreamTarget, DispatchSession, RecordingSession, PresentSession, AskingSession {
  readonly id: string;
  readonly peer: SessionPeer;
  readonly core: SessionCore;
  /** Recorded in the database, so its end must be too. */
  isRecorded = false;
  endReason = 'closed';
  /** What the daemon reported since the last presence write; null for nothing. */
  unwritten: SessionReport | null = null;
  writtenSeenAt = 0;
  readonly stream: SessionStream;
  readonly #transport: SessionTransport;
  readonly #outbound: Outbound;
  readonly #host: SessionHost<AgentSession>;
  readonly #reader = new MessageReader(bounds.agentFrame, prefixRefusal);
  #frames = 0;
  #pausedFor: PauseReason | null = null;
  #isBacklogged = false;
  #endedAt = 0;

  constructor(
    stream: SessionStream,
    host: SessionHost<AgentSession>,
    { id, peer, transport }: { readonly id: string; readonly peer: SessionPeer; readonly transport: SessionTransport },
  ) {
    this.id = id;
    this.peer = peer;
    this.stream = stream;
    this.#transport = transport;
    this.#outbound = new Outbound(stream);
    this.#host = host;
    this.core = new SessionCore(peer.nodeId, host.terms, host.now());
    transport.open(stream, this);
  }

  get nodeId(): string {
    return this.peer.nodeId;
  }

  get epoch(): number {
    return this.core.epoch;
  }

  get lastSeenAt(): number {
    return this.core.lastFrameAt;
  }

  /** Bytes queued to the peer. */
  get queuedBytes(): number {
    return this.#outbound.queuedBytes;
  }

  onChunk(chunk: Buffer): void {
    if (this.core.phase === 'ended') return;
    try {
      this.#reader.push(chunk, this);
    } catch (error) {
      this.#fail(error);
    }
    this.#mayPause();
  }

  onWhole(message: Uint8Array): void {
    if (this.core.phase === 'ended') return;
    try {
      if (message.length > bounds.agentFrame)
        throw prefixRefusal({ reason: 'frame-too-large', length: message.length, maxBytes: bounds.agentFrame });
      this.onMessage(message);
    } catch (error) {
      this.#fail(error);
    }
    this.#mayPause();
  }

  #mayPause(): void {
    if (this.core.phase === 'opening') this.#pause('opening');
    else if (this.#frames > sessionLimits.framesPerSweep) this.#pause('flood');
    else if (this.#host.isRecorderFull) this.#pause('recorder');
  }

  onMessage(message: Uint8Array): void {
    if (this.core.phase === 'ended') return;
    this.#frames += 1;
    const now = this.#host.now();
    const ack = this.core.takesHeartbeats ? answerHeartbeat(message, now) : null;
    if (ack === null) return this.core.onFrame(this.#decode(message), now, this);
    this.core.onHeartbeat(now);
    if (!this.#outbound.write(ack)) this.#cut();
  }

  /** The daemon says goodbye; one that never said hello has not been a session. */
  onHalfClose(): void {
    if (this.core.phase === 'hello') return this.core.end('first-frame-not-hello', this);
    if (this.core.phase === 'ended') return;
    this.core.onClosed();
    this.endReason = 'half-closed';
    this.#endedAt = this.#host.now();
    this.#transport.finish(this.stream);
  }

  onClose(): void {
    this.core.onClosed();
    this.#host.closed(this);
  }

  /** The chain that the peer proved itself with. @throws when its connection is gone */
  peerChain(): readonly Uint8Array[] {
    return this.#transport.chainOf(this.stream);
  }

  /** For the transport's own accounts. */
  streamClosed(wasUseful: boolean): void {
    this.#transport.closed(this.stream, wasUseful);
  }

  onDrain(): void {
    if (!this.#isBacklogged) return;
    this.#isBacklogged = false;
    this.#host.wake(this);
  }

  onOpened(opened: OpenedSession, trust: PublishedTrust | null): void {
    this.core.onOpened(opened, { trust, now: this.#host.now() }, this);
    this.#resume('opening');
  }

  onTrust(trust: PublishedTrust): void {
    this.core.onTrust(trust, this.#host.now(), this);
  }

  onDesiredState(state: StoredDesiredState): void {
    this.core.onDesiredState(state, this);
  }

  onReceipts(commandIds: readonly string[]): void {
    this.core.onReceipts(commandIds, this);
  }

  onFenced(): void {
    this.core.end('superseded', this);
  }

  onRefused(error: unknown): void {
    this.#fail(error);
  }

  onRoom(): void {
    this.#resume('recorder');
  }

  onRevoked(notice: { readonly serial: string; readonly reason: string; readonly revokedAt: number }): void {
    this.core.onRevoked(notice, this);
  }

  onDrainSlot(slot: { readonly afterMs: number; readonly windowMs: number; readonly reason: string }): void {
    this.core.onDrain(slot, this);
  }

  readFrom(): number | null {
    return this.#isBacklogged ? null : this.core.readFrom();
  }

  deliver(commands: readonly QueuedCommand[]): boolean {
    const takesMore = this.core.deliver(commands, { now: this.#host.now(), hasRoom: () => this.#outbound.hasRoom }, this);
    this.#isBacklogged = !takesMore;
    return takesMore;
  }

  outstanding(): string[] {
    return this.core.outstanding(this.#host.now());
  }

  onCancelled(commandId: string): void {
    this.core.onCancelled(commandId, this);
  }

  /** Once a second: deadlines, the stalled stream, the one that does not end. */
  sweep(now: number): void {
    this.#frames = 0;
    this.#resume('flood');
    if (this.#endedAt !== 0) {
      if (now - this.#endedAt >= sessionLimits.endWithinMs) this.stream.destroy();
      return;
    }
    if (now >= this.peer.certNotAfter + 1_000 && this.core.phase !== 'hello') this.core.end('draining', this);
    if (this.#outbound.isStalled(now)) this.#cut();
    else this.core.sweep(now, this);
  }

  open(hello: HelloFacts): void {
    this.#host.open(this, hello);
  }

  send(frame: ServerFrameInit): void {
    if (!this.#outbound.send(frame)) this.#cut();
  }

  ack(row: CommandAckRow): void {
    this.#host.record(this, { kind: 'ack', row });
  }

  reject(row: CommandRejectRow): void {
    this.#host.record(this, { kind: 'reject', row });
  }

  result(row: CommandResultRow): void {
    this.#host.record(this, { kind: 'result', row });
  }

  progress(row: CommandProgressRow): void {
    this.#host.progress(this, row);
  }

  report(report: SessionReport, soon: boolean): void {
    this.unwritten = mergeReports(this.unwritten, report);
    this.#host.reported(this, soon);
  }

  wake(): void {
    this.#host.wake(this);
  }

  trustRefused(refused: TrustRefused): void {
    this.#host.trustRefused(this, refused);
  }

  ask(question: BrokerQuestion): void {
    this.#host.ask(this, question);
  }

  answer(frame: Uint8Array): void {
    if (this.core.takesHeartbeats && !this.#outbound.write(frameMessage(frame, Buffer.allocUnsafe))) this.#cut();
  }

  end(reason: RefusalReason, message?: string): void {
    this.#finish(reason, refusal(reason, message === undefined ? {} : { message }));
  }

  #decode(message: Uint8Array): ReceivedFrame {
    try {
      return withQuestion(decodeMessage(AgentFrameSchema, message, this.core.phase === 'hello' ? 'hello' : 'agentFrame'), message);
    } catch (cause) {
      const isTooLarge = cause instanceof ProtocolError && cause.code === 'FRAME_TOO_LARGE';
      throw refusal(isTooLarge ? 'frame-too-large' : 'undecodable-frame', { cause });
    }
  }

  /** Ends the session for something that was thrown; what is not a refusal is a fault of ours and goes to the log. */
  #fail(error: unknown): void {
    if (this.core.phase === 'ended') return;
    if (!isControlError(error)) this.#host.failed(this, error);
    this.core.onClosed();
    this.#finish(toWireRefusal(error, this.#host.random).reason, error);
  }

  /** What the open failed for. */
  onOpenFailed(error: unknown): void {
    this.#fail(error);
    this.#resume('opening');
  }

  #finish(reason: string, error: unknown): void {
    this.endReason = reason;
    this.#endedAt = this.#host.now();
    this.#host.ended(this, reason);
    this.#transport.refuse(this.stream, toWireRefusal(error, this.#host.random));
  }

  /** The peer takes nothing: trailers would wait behind what it does not read. */
  #cut(): void {
    if (this.#endedAt !== 0) return;
    this.core.onClosed();
    this.endReason = 'send-budget';
    this.#endedAt = this.#host.now();
    this.#host.ended(this, 'send-budget');
    this.#transport.cut(this.stream);
  }

  #pause(reason: PauseReason): void {
    if (this.core.phase === 'ended') return;
    this.#pausedFor = reason;
    this.stream.pause();
  }

  #resume(reason: PauseReason): void {
    if (this.#pausedFor !== reason) return;
    this.#pausedFor = null;
    if (!this.stream.destroyed) this.stream.resume();
  }
}
