/**
 * The door in front of the TLS server: sockets are accepted paused, and only a few handshakes run at a time.
 *
 * A full mutual handshake costs over a millisecond of the one JavaScript thread. Without a door, two thousand reconnecting
 * nodes are all half-way through at once and every live session waits behind them; with eight at a time the live ones stay
 * within tens of milliseconds and half-done handshakes hold little memory (measured). What waits too long, or does not fit in
 * the queue, is closed: a daemon that is told nothing backs off and dials again.
 *
 * A place is held for a short lease, not for the whole handshake: a near peer is done within it, a far one goes on without
 * its place, and one that connects and says nothing shuts the door on others for no longer than that. When it is this process
 * that is late, the lease is renewed: otherwise the door would open the wider the more there is to do (measured: the p99 of
 * live sessions then trebled). How many handshakes may be open at all is bounded apart from it.
 */
import type { Socket } from 'node:net';
import type { Scheduler } from '../scheduler.ts';
import type { TurnQueue } from '../turn-queue.ts';

export interface AdmissionOptions {
  /** Handshakes that may hold a place at a time. */
  readonly slots: number;
  /** How long one holds its place at most. */
  readonly leaseMs: number;
  /** Handshakes open at a time, with a place or without. */
  readonly maxOpen: number;
  /** Sockets that may wait; more are closed at once. */
  readonly maxWaiting: number;
  readonly waitAtMostMs: number;
  readonly scheduler: Scheduler;
  readonly turns: TurnQueue;
  /** Starts the handshake; its end comes back through `finished`, or as the socket's close. */
  admit(socket: Socket): void;
}

interface Waiting {
  readonly socket: Socket;
  readonly since: number;
}

interface Running {
  readonly socket: Socket;
  readonly onClose: () => void;
  /** When the lease ends; then, by how much its end came late says how busy this process is. */
  leaseUntil: number;
  renewals: number;
  cancelLease: () => void;
  holdsPlace: boolean;
}

interface Peer {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

/** A timer that comes later than this share of the lease came late because of us. */
const lateShare = 0.2;

const mostRenewals = 40;

export class Admission {
  readonly #options: AdmissionOptions;
  /** By address and port of the peer: the TLS socket knows no other way back to the raw one. */
  readonly #running = new Map<string, Running>();
  readonly #queue: Waiting[] = [];
  #places = 0;
  #closed = false;
  #isTurnDue = false;

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  get running(): number {
    return this.#running.size;
  }

  /** A socket that was accepted with `pauseOnConnect`. */
  offer(socket: Socket): void {
    socket.on('error', ignore);
    if (this.#closed || this.#queue.length >= this.#options.maxWaiting) {
      socket.destroy();
      return;
    }
    this.#queue.push({ socket, since: this.#options.scheduler.now() });
    this.#next();
  }

  /** The handshake of the peer is over, well or badly. */
  finished(peer: Peer): void {
    this.#release(keyOf(peer));
  }

  /** Closes what waits and what is in handshake. */
  close(): void {
    this.#closed = true;
    for (const { socket } of this.#queue.splice(0)) socket.destroy();
    for (const { socket } of this.#running.values()) socket.destroy();
  }

  #next(): void {
    if (this.#isTurnDue || this.#queue.length === 0 || !this.#hasPlace) return;
    this.#isTurnDue = true;
    this.#options.turns.add(() => {
      this.#isTurnDue = false;
      const hasAdmitted = this.#admitOne();
      this.#next();
      return hasAdmitted;
    });
  }

  get #hasPlace(): boolean {
    return this.#places < this.#options.slots && this.#running.size < this.#options.maxOpen;
  }

  #admitOne(): boolean {
    const { waitAtMostMs, scheduler } = this.#options;
    while (this.#hasPlace) {
      const next = this.#queue.shift();
      if (next === undefined) return false;
      // A peer that left while it waited has no address any more.
      const isStale = next.socket.remotePort === undefined || scheduler.now() - next.since > waitAtMostMs;
      if (!isStale && !next.socket.destroyed) {
        this.#admit(next.socket);
        return true;
      }
      next.socket.destroy();
    }
    return false;
  }

  #admit(socket: Socket): void {
    const key = keyOf(socket);
    const onClose = (): void => this.#release(key);
    const entry: Running = { socket, onClose, leaseUntil: 0, renewals: 0, cancelLease: ignore, holdsPlace: true };
    this.#running.set(key, entry);
    this.#places += 1;
    this.#lease(entry);
    socket.once('close', onClose);
    this.#options.admit(socket);
  }

  #lease(entry: Running): void {
    const { scheduler, leaseMs } = this.#options;
    entry.leaseUntil = scheduler.now() + leaseMs;
    entry.cancelLease = scheduler.after(leaseMs, () => this.#onLeaseOver(entry));
  }

  #onLeaseOver(entry: Running): void {
    const { scheduler, leaseMs } = this.#options;
    const isLate = scheduler.now() - entry.leaseUntil > leaseMs * lateShare;
    const hasSpoken = entry.socket.bytesRead > 0;
    if (isLate && hasSpoken && entry.renewals < mostRenewals) {
      entry.renewals += 1;
      this.#lease(entry);
    } else this.#endLease(entry);
  }

  #endLease(entry: Running): void {
    if (!entry.holdsPlace) return;
    entry.holdsPlace = false;
    this.#places -= 1;
    this.#next();
  }

  #release(key: string): void {
    const entry = this.#running.get(key);
    if (entry === undefined) return;
    this.#running.delete(key);
    entry.cancelLease();
    entry.socket.off('close', entry.onClose);
    if (entry.holdsPlace) this.#endLease(entry);
    else this.#next();
  }
}

const ignore = (): void => undefined;

const keyOf = ({ remoteAddress, remotePort }: Peer): string => `${remoteAddress ?? ''}|${remotePort ?? 0}`;
