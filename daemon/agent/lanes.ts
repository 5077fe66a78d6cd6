/**
 * Who waits for whom. Commands of one lane run one after another; in a lane whose kinds are `perSubject` (a site agent's) that holds for
 * each subject alone, so that a management controller which answers to nobody holds up the commands of its own machine and no other's.
 *
 * Room is bounded twice: for each queue, and for the lane as a whole. What finds none stays with the gateway, unacknowledged.
 */
import type { CommandKindSpec, Lane } from '../../domain/commands/kinds.ts';

/** Waiting in one lane of a machine's own. */
export const laneRoom = 64;

/** Waiting for one subject of a shared lane; a run sends its commands to a machine one after another, so a longer queue is no run's. */
export const subjectRoom = 16;

/** Waiting in a shared lane, over all its subjects. */
export const sharedLaneRoom = 1024;

/** Where a command waits. */
export interface Place {
  readonly lane: Lane;
  /** null: the lane is one queue. Commands whose payload names no subject share the queue of the empty one and fail there. */
  readonly subject: string | null;
}

export const placeOf = ({ lane, perSubject }: CommandKindSpec, subject: string | null): Place => ({
  lane,
  subject: perSubject === true ? (subject ?? '') : null,
});

const keyOf = ({ lane, subject }: Place): string => (subject === null ? lane : `${lane} ${subject}`);

interface Queue<J> {
  readonly waiting: J[];
  running: J | undefined;
}

/** What waits or runs. */
interface Placed {
  readonly place: Place;
  readonly entry: { readonly id: string };
}

/** Queues by place; one is kept only as long as something waits or runs in it. */
export class Lanes<J extends Placed> {
  readonly #queues = new Map<string, Queue<J>>();
  readonly #waitingIn = new Map<Lane, number>();

  hasRoom(place: Place): boolean {
    const queued = this.#queues.get(keyOf(place))?.waiting.length ?? 0;
    if (place.subject === null) return queued < laneRoom;
    return queued < subjectRoom && (this.#waitingIn.get(place.lane) ?? 0) < sharedLaneRoom;
  }

  push(job: J): void {
    const { place } = job;
    const key = keyOf(place);
    const queue = this.#queues.get(key) ?? { waiting: [], running: undefined };
    queue.waiting.push(job);
    this.#queues.set(key, queue);
    this.#count(place.lane, 1);
  }

  /** The next of a queue in which nothing runs; it runs from here on. */
  begin(place: Place): J | undefined {
    const queue = this.#queues.get(keyOf(place));
    if (queue === undefined || queue.running !== undefined) return undefined;
    queue.running = queue.waiting.shift();
    if (queue.running !== undefined) this.#count(place.lane, -1);
    return queue.running;
  }

  end(place: Place): void {
    const key = keyOf(place);
    const queue = this.#queues.get(key);
    if (queue === undefined) return;
    queue.running = undefined;
    if (queue.waiting.length === 0) this.#queues.delete(key);
  }

  *running(): Generator<J> {
    for (const { running } of this.#queues.values()) if (running !== undefined) yield running;
  }

  /** Takes a waiting command out of its queue. */
  take(id: string): J | undefined {
    for (const { waiting } of this.#queues.values()) {
      const at = waiting.findIndex(({ entry }) => entry.id === id);
      const [job] = at === -1 ? [] : waiting.splice(at, 1);
      if (job === undefined) continue;
      this.#count(job.place.lane, -1);
      return job;
    }
    return undefined;
  }

  #count(lane: Lane, by: number): void {
    this.#waitingIn.set(lane, (this.#waitingIn.get(lane) ?? 0) + by);
  }
}
