/**
 * What arriving nodes cost, one piece a turn of the event loop.
 *
 * Whatever became ready in a turn is done in that turn, and every live session waits for its end. A handshake is begun, or a
 * stream's peer verified and its session opened, only once a turn: after a restart of the fleet the turns stay a few
 * milliseconds long, and the queue, not the live sessions, waits. When nothing else is to do, turns are short and the queue moves at
 * full speed.
 *
 * First come, first served. Its length is bounded by what fills it: open streams, and sockets at the door.
 */
export class TurnQueue {
  readonly #waiting: (() => boolean)[] = [];
  readonly #nextTurn: (fn: () => void) => void;
  #isDue = false;

  constructor(nextTurn: (fn: () => void) => void = setImmediate) {
    this.#nextTurn = nextTurn;
  }

  /**
   * @param work answers false when there was nothing left to do, and then costs no turn. It reports its own failures: what it
   *   throws ends the process as an uncaught exception.
   */
  add(work: () => boolean): void {
    this.#waiting.push(work);
    this.#arm();
  }

  #arm(): void {
    if (this.#isDue || this.#waiting.length === 0) return;
    this.#isDue = true;
    this.#nextTurn(() => {
      this.#isDue = false;
      try {
        while (this.#waiting.shift()?.() === false);
      } finally {
        this.#arm();
      }
    });
  }
}
