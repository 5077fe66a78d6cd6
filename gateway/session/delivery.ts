/**
 * What of a node's log may be sent now: pure, one small object per session that has ever been given a command.
 *
 * Rules: per lane at most `laneWindows` commands are unacknowledged; lanes do not wait for one another, so each has its own
 * cursor into the one log; a command is sent once per session; after a reconnect everything unfinished is sent again, and the
 * daemon answers from its journal.
 *
 * Threat model: a daemon that acknowledges and never answers. What is kept of a command ends with the time in which it could
 * still run, and its number has a bound.
 */
import { findCommandKind, type Lane, laneWindows } from '../../domain/commands/kinds.ts';
import type { QueuedCommand } from './store.ts';

export const deliveryLimits = Object.freeze({
  /** Ids kept of one session. Beyond them the oldest acknowledged one is forgotten: a cancellation then finds it only in the log. */
  outstanding: 4_096,
  /** For a kind this version does not know. */
  timeoutMs: 3_600_000,
});

const lanes = Object.freeze(Object.keys(laneWindows) as Lane[]);

/** A lane this version does not know waits behind the narrowest rule it has. */
const laneOf = (name: string): Lane => (Object.hasOwn(laneWindows, name) ? (name as Lane) : 'power');

interface Outstanding {
  readonly seq: number;
  readonly lane: Lane;
  /** Its deadline and the time of its kind: after it, nothing that is said about it counts. */
  readonly forgetAt: number;
  acked: boolean;
}

export type Verdict =
  | 'send'
  /** Sent before, too old, or not for this session: passed over for good. */
  | 'skip'
  /** Its lane has no room: read again later. */
  | 'wait';

const noneOfEach = (): Record<Lane, number> => Object.fromEntries(lanes.map((lane) => [lane, 0])) as Record<Lane, number>;

export class Delivery {
  readonly #cursor = noneOfEach();
  readonly #unacked = noneOfEach();
  readonly #outstanding = new Map<string, Outstanding>();
  /** Lanes in which something was left behind. Any other has nothing between its cursor and the last command that was judged. */
  readonly #blocked = new Set<Lane>();

  /** Where to read on; null when no lane has room. */
  readFrom(): number | null {
    let from: number | null = null;
    for (const lane of lanes) {
      if (this.#hasRoom(lane)) from = Math.min(from ?? Number.MAX_SAFE_INTEGER, this.#cursor[lane]);
    }
    return from;
  }

  /** Judges one command of a read and counts it when it is to be sent. Call in log order. */
  judge(command: QueuedCommand, { now, only }: { readonly now: number; readonly only: string | null }): Verdict {
    const lane = laneOf(command.lane);
    if (command.seq <= this.#cursor[lane]) return 'skip';
    if (this.#blocked.has(lane)) return 'wait';
    if (only !== null && command.kind !== only) return 'skip';
    if (command.deadline <= now) {
      this.#cursor[lane] = command.seq;
      return 'skip';
    }
    if (!this.#hasRoom(lane)) {
      this.#blocked.add(lane);
      return 'wait';
    }
    this.#cursor[lane] = command.seq;
    this.#unacked[lane] += 1;
    this.#remember(command, lane);
    return 'send';
  }

  /** Before each read: a lane that has room again is looked at again, from its own cursor. */
  beginRead(): void {
    for (const lane of lanes) if (this.#hasRoom(lane)) this.#blocked.delete(lane);
  }

  /** After it: a lane that left nothing behind is done up to the last command that was judged. */
  endRead(judgedTo: number): void {
    for (const lane of lanes) {
      if (!this.#blocked.has(lane)) this.#cursor[lane] = Math.max(this.#cursor[lane], judgedTo);
    }
  }

  /** @returns true when the ack made room that something waits for */
  onAck(commandId: string): boolean {
    const entry = this.#outstanding.get(commandId);
    if (entry === undefined || entry.acked) return false;
    entry.acked = true;
    return this.#release(entry.lane);
  }

  /** Finished or refused by the daemon. @returns as onAck */
  onEnd(commandId: string): boolean {
    const entry = this.#outstanding.get(commandId);
    if (entry === undefined) return false;
    this.#outstanding.delete(commandId);
    return entry.acked ? false : this.#release(entry.lane);
  }

  /** What was sent at a position of the log; undefined for nothing that is still outstanding. */
  idAt(seq: number): string | undefined {
    for (const [id, entry] of this.#outstanding) if (entry.seq === seq) return id;
    return undefined;
  }

  /** Sent, not finished and still able to: the ids a cancellation may name. */
  outstanding(now: number): string[] {
    for (const [id, { forgetAt }] of this.#outstanding) if (forgetAt <= now) this.onEnd(id);
    return [...this.#outstanding.keys()];
  }

  #remember({ id, seq, kind, deadline }: QueuedCommand, lane: Lane): void {
    const forgetAt = deadline + (findCommandKind(kind)?.timeoutMs ?? deliveryLimits.timeoutMs);
    this.#outstanding.set(id, { seq, lane, forgetAt, acked: false });
    if (this.#outstanding.size <= deliveryLimits.outstanding) return;
    // Only a few are unacknowledged, and those hold their lane's room.
    for (const [oldest, { acked }] of this.#outstanding) if (acked) return void this.#outstanding.delete(oldest);
  }

  #hasRoom(lane: Lane): boolean {
    return this.#unacked[lane] < laneWindows[lane];
  }

  #release(lane: Lane): boolean {
    this.#unacked[lane] -= 1;
    return this.#blocked.has(lane);
  }
}
