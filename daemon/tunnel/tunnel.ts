/**
 * One tunnel on the machine: a stream of frames on one side, a socket on the other (TUN-006, TUN-007, TUN-009).
 *
 *   opened → data both ways → closed
 *
 * It lasts as long as tickets come: each counts for some minutes, and the client must have been given another before then (SBX-018). A
 * ticket that is not for this very tunnel changes nothing, so whoever carries the frames can end a tunnel, and never lengthen one.
 */
import { connect, type Socket } from 'node:net';
import { isControlError } from '../../domain/errors.ts';
import { type TunnelEnd, type TunnelLimits, tunnelEnds } from '../../domain/tunnels/limits.ts';
import { isForSameTunnel, type VerifiedTicket } from '../../pki/exec/index.ts';
import type { TunnelFrame } from '../../proto/index.ts';
import type { AgentLog } from '../agent/log.ts';
import { reasonOf } from '../reason.ts';
import { type TunnelFrames, writeWhole } from '../transport/tunnel-frames.ts';
import type { JudgedTicket, TunnelPlace } from './judge.ts';

export interface TunnelOptions {
  readonly tunnelId: string;
  readonly frames: TunnelFrames;
  readonly judged: JudgedTicket;
  readonly limits: TunnelLimits;
  /** Counts up, whatever is done to the clock. Milliseconds. */
  readonly steadyMs: () => number;
  /** A later ticket, by the rules of the first. @throws when it is refused */
  readonly judge: (ticket: string) => VerifiedTicket;
  readonly log: AgentLog;
}

const endedCode: Readonly<Partial<Record<TunnelEnd, number>>> = Object.freeze({ ended: 0 });
const cutCode = 255;

export class Tunnel {
  readonly #options: TunnelOptions;
  readonly #startedAt: number;
  #ticketUntil: number;
  #movedAt: number;
  #timer: NodeJS.Timeout | undefined;
  #socket: Socket | undefined;
  #end: TunnelEnd | undefined;

  constructor(options: TunnelOptions) {
    const now = options.steadyMs();
    this.#options = options;
    this.#startedAt = now;
    this.#movedAt = now;
    this.#ticketUntil = now + options.limits.ticketCountsMs;
  }

  /** Resolves, never rejects, when it is over. */
  async run(): Promise<void> {
    const { frames, tunnelId, judged, limits } = this.#options;
    await frames.send({ frame: { case: 'opened', value: { tunnelId } } });
    const dialled = dial(judged.place, limits.dialWithinMs);
    const up = this.#readClient(dialled);
    const socket = await dialled;
    if (socket === undefined) this.finish('unreachable');
    else await this.#carry(socket);
    this.finish('ended');
    await Promise.all([frames.closed, up]);
    socket?.destroy();
  }

  /** The first end counts. */
  finish(end: TunnelEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    clearTimeout(this.#timer);
    const { frames, log, tunnelId } = this.#options;
    log.info({ tunnelId, end }, `a tunnel is over: ${tunnelEnds[end]}`);
    this.#socket?.destroy();
    void frames.send({ frame: { case: 'closed', value: { exitCode: endedCode[end] ?? cutCode, reason: end } } });
    frames.end();
    // A client that takes nothing would keep it open.
    setTimeout(() => frames.cut(), this.#options.limits.dialWithinMs).unref();
  }

  async #carry(socket: Socket): Promise<void> {
    const { frames, steadyMs } = this.#options;
    if (this.#end !== undefined) return void socket.destroy();
    this.#socket = socket;
    void frames.closed.then(() => socket.destroy());
    this.#watch();
    try {
      for await (const chunk of socket) {
        this.#movedAt = steadyMs();
        await frames.sendData(0, chunk as Buffer);
      }
      await frames.sendEnd(0);
    } catch {
      // It was cut: what follows says so.
    }
    // The machine has said all; what the client still says goes out until it has said all too.
    if (!socket.destroyed) await new Promise<void>((resolve) => void socket.once('close', () => resolve()));
  }

  async #readClient(dialled: Promise<Socket | undefined>): Promise<void> {
    try {
      await this.#options.frames.read((frame) => this.#onFrame(frame, dialled));
    } catch (error) {
      if (isControlError(error)) return this.finish('client-fault');
    }
    // The gateway's half is over, and with it the tunnel; what is still to be written would keep the stream for ever.
    this.finish('ended');
    this.#options.frames.cut();
  }

  /** What comes before the machine answers waits for it, and with it whoever sends. */
  async #onFrame(frame: TunnelFrame['frame'], dialled: Promise<Socket | undefined>): Promise<void> {
    if (this.#end !== undefined) return;
    if (frame.case === 'ticket') return this.#onTicket(frame.value.ticket);
    if (frame.case !== 'data') return;
    if (frame.value.channel !== 0) return this.finish('client-fault');
    this.#movedAt = this.#options.steadyMs();
    const socket = await dialled;
    if (socket === undefined) return;
    if (frame.value.data.length > 0) await writeWhole(socket, frame.value.data);
    if (frame.value.end) socket.end();
  }

  #onTicket(text: string): void {
    const { judge, judged, log, tunnelId, limits, steadyMs } = this.#options;
    try {
      if (!isForSameTunnel(judged.ticket, judge(text))) return log.warn({ tunnelId }, 'a ticket came that is for another tunnel');
      this.#ticketUntil = steadyMs() + limits.ticketCountsMs;
      log.debug({ tunnelId }, 'a tunnel goes on by a new ticket');
    } catch (error) {
      log.warn(
        { tunnelId, reason: isControlError(error) ? reasonOf(error) : 'internal' },
        'a ticket for a tunnel that is open was refused',
      );
    }
  }

  /** Looks at the earliest of its ends, and then again. */
  #watch(): void {
    if (this.#end !== undefined) return;
    const { limits, steadyMs } = this.#options;
    const ends: readonly (readonly [TunnelEnd, number])[] = [
      ['not-reauthorised', this.#ticketUntil],
      ['idle', this.#movedAt + limits.idleMs],
      ['lifetime', this.#startedAt + limits.lifetimeMs],
    ];
    const [end, at] = ends.reduce((first, next) => (next[1] < first[1] ? next : first));
    const inMs = at - steadyMs();
    if (inMs <= 0) return this.finish(end);
    this.#timer = setTimeout(() => this.#watch(), inMs);
    this.#timer.unref();
  }
}

/** undefined when nothing answers in time. */
function dial({ host, port }: TunnelPlace, withinMs: number): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, allowHalfOpen: true, noDelay: true });
    // A late fault of it shows as its end.
    socket.on('error', () => undefined);
    const settle = (answer: Socket | undefined): void => {
      clearTimeout(timer);
      socket.off('connect', onConnect).off('error', onError);
      if (answer === undefined) socket.destroy();
      resolve(answer);
    };
    const onConnect = (): void => settle(socket);
    const onError = (): void => settle(undefined);
    const timer = setTimeout(onError, withinMs);
    socket.once('connect', onConnect).once('error', onError);
  });
}
