/**
 * One session on a wire: frames out, frames in, and three ways to notice that nobody is there any more, each against a fault the others
 * do not see:
 *   - PING every 20 s, two without an answer: a path that swallows packets (B26);
 *   - application heartbeat, two without an answer: a peer that answers PING while its stream is dead (B46);
 *   - a deadline for the first frame: a server that says nothing at all (B48).
 * Frames are handled one after another; while one is being handled, reading stops, and the peer is held back by flow control.
 */
import type { ClientHttp2Stream } from 'node:http2';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { AgentFrameSchema, decodeMessage, encodeMessage, type ServerFrame, ServerFrameSchema } from '../../proto/index.ts';
import type { SessionWire } from './wire.ts';

export type AgentFrameInit = MessageInitShape<typeof AgentFrameSchema>;

export interface SessionTiming {
  readonly pingEveryMs: number;
  readonly firstFrameWithinMs: number;
  /** Bounds for what Welcome asks of us. */
  readonly leastHeartbeatMs: number;
  readonly mostHeartbeatMs: number;
}

export const sessionTiming: SessionTiming = Object.freeze({
  pingEveryMs: 20 * second,
  firstFrameWithinMs: 15 * second,
  leastHeartbeatMs: second,
  mostHeartbeatMs: 300 * second,
});

/** From one beat to the next: within a tenth of what was asked, drawn anew each time, so that a fleet in step leaves it (B43). */
export const nextBeatMs = (everyMs: number, random: () => number): number => everyMs * (0.9 + 0.2 * random());

/** What may lie unsent before the peer counts as dead. */
const unsentMaxBytes = 8 * 1024 * 1024;
const missedMax = 2;

export interface SessionStreamOptions {
  readonly hello: AgentFrameInit;
  readonly timing: SessionTiming;
  readonly random: () => number;
  /** Rejecting ends the session with that error. */
  readonly onFrame: (frame: ServerFrame, stream: SessionStream) => Promise<void>;
  /** The beat: what to send, and the sequence that its answer must name. */
  readonly heartbeat: (sequence: bigint) => AgentFrameInit;
}

export class SessionStream {
  readonly #wire: SessionWire;
  readonly #options: SessionStreamOptions;
  readonly #timers = new Set<NodeJS.Timeout>();
  #failure: ControlError | undefined;
  #sawFrame = false;
  #beat = 0n;
  #answeredBeat = 0n;
  #ended = false;
  /** Resolves, never rejects, with why it ended; null when we closed it on purpose. */
  readonly ended: Promise<ControlError | null>;
  /** Resolves when the gateway says it will end this connection (GOAWAY): dial anew at once, this stream drains (B23). */
  readonly goingAway: Promise<void>;

  constructor(wire: SessionWire, options: SessionStreamOptions) {
    this.#wire = wire;
    this.#options = options;
    this.goingAway = wire.goingAway;
    this.ended = wire.closed.then(() => this.#onClose());
    this.#startDeadlines();
    void this.#read();
    this.send(options.hello);
  }

  get isOpen(): boolean {
    return !this.#ended && !this.#wire.isGone && this.#failure === undefined;
  }

  /** False when it went nowhere: what must arrive is kept by the caller until it is confirmed. */
  send(frame: AgentFrameInit): boolean {
    if (!this.isOpen || !this.#wire.isWritable) return false;
    if (this.#wire.unsentBytes > unsentMaxBytes) {
      this.fail(new ControlError('UNAVAILABLE', 'the gateway does not read what it is sent', { details: { reason: 'send-budget' } }));
      return false;
    }
    this.#wire.send(encodeMessage(AgentFrameSchema, frame, 'agentFrame'));
    return true;
  }

  /** A Tunnel stream on this connection (TRN-008); undefined when it is over. */
  requestTunnel(): ClientHttp2Stream | undefined {
    return this.isOpen ? this.#wire.requestTunnel() : undefined;
  }

  /** Beats from now on. */
  startHeartbeat(askedMs: number): void {
    const { leastHeartbeatMs, mostHeartbeatMs } = this.#options.timing;
    const everyMs = Math.min(Math.max(askedMs === 0 ? 15 * second : askedMs, leastHeartbeatMs), mostHeartbeatMs);
    this.#repeat(
      () => nextBeatMs(everyMs, this.#options.random),
      () => {
        if (this.#beat - this.#answeredBeat >= BigInt(missedMax))
          return this.fail(dead('heartbeat-lost', `the gateway did not answer ${missedMax} heartbeats`));
        this.#beat += 1n;
        this.send(this.#options.heartbeat(this.#beat));
      },
    );
  }

  heartbeatAnswered(sequence: bigint): void {
    if (sequence <= this.#beat && sequence > this.#answeredBeat) this.#answeredBeat = sequence;
  }

  /** Ends it in peace: what was written goes out first. */
  close(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#clearTimers();
    this.#wire.finish();
  }

  /** Ends it at once, and says why. */
  fail(error: ControlError): void {
    if (this.#ended) return;
    this.#failure ??= error;
    this.#wire.destroy();
  }

  #onClose(): ControlError | null {
    this.#clearTimers();
    const ours = this.#ended;
    this.#ended = true;
    if (ours) return null;
    this.#wire.destroy();
    return (
      this.#failure ??
      this.#wire.verdict() ??
      new ControlError('UNAVAILABLE', 'the gateway ended the session', { details: { reason: 'ended' } })
    );
  }

  async #read(): Promise<void> {
    try {
      for await (const message of this.#wire.messages()) {
        this.#sawFrame = true;
        await this.#options.onFrame(decodeFrame(message), this);
        if (!this.isOpen) return;
      }
    } catch (error) {
      this.fail(
        error instanceof ControlError
          ? error
          : new ControlError('UNAVAILABLE', 'the session was lost', { cause: error, details: { reason: 'connection-lost' } }),
      );
    }
  }

  #startDeadlines(): void {
    const { timing, random } = this.#options;
    this.#after(timing.firstFrameWithinMs, () => {
      if (!this.#sawFrame) this.fail(dead('no-welcome', `the gateway sent no welcome within ${timing.firstFrameWithinMs / 1000} s`));
    });
    let unanswered = 0;
    this.#repeat(
      () => timing.pingEveryMs * (0.95 + 0.1 * random()),
      () => {
        if (unanswered >= missedMax) return this.fail(dead('ping-lost', `the gateway did not answer ${missedMax} pings`));
        if (this.#wire.isGone) return;
        unanswered += 1;
        this.#wire.ping(() => {
          unanswered = 0;
        });
      },
    );
  }

  /** Nothing once it ended: a welcome may still be worked on then, and its heartbeat would keep the process for a beat. */
  #after(ms: number, run: () => void): void {
    if (this.#ended) return;
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      run();
    }, ms);
    this.#timers.add(timer);
  }

  #repeat(everyMs: () => number, run: () => void): void {
    this.#after(everyMs(), () => {
      run();
      if (this.isOpen) this.#repeat(everyMs, run);
    });
  }

  #clearTimers(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }
}

const dead = (reason: string, message: string): ControlError => new ControlError('UNAVAILABLE', message, { details: { reason } });

function decodeFrame(message: Uint8Array): ServerFrame {
  try {
    return decodeMessage(ServerFrameSchema, message, 'serverFrame');
  } catch (cause) {
    throw new ControlError('MALFORMED', `the gateway sent a frame of ${message.length} bytes that does not decode`, {
      cause,
      details: { reason: 'undecodable-frame' },
    });
  }
}
