/** Telling many sessions something, spread so that neither they nor the gateway act all at once. */

/** Sessions handled in one turn of the loop. */
const perTurn = 200;

/** A few hundred at a time: live sessions do not wait for a whole fleet to be told. */
export function inTurns<S>(all: Iterable<S>, tell: (session: S) => void): void {
  const sessions = [...all];
  const next = (): void => {
    for (const session of sessions.splice(0, perTurn)) tell(session);
    if (sessions.length > 0) setImmediate(next);
  };
  next();
}

export interface DrainSlot {
  readonly afterMs: number;
  readonly windowMs: number;
  readonly reason: string;
}

/** Each daemon gets a slot of its own in the window to dial again in: the herd is bounded by arithmetic, not by luck (B33). */
export function sendSlots(
  sessions: readonly { onDrainSlot(slot: DrainSlot): void }[],
  { windowMs, reason }: { readonly windowMs: number; readonly reason: string },
): void {
  const slotMs = windowMs / Math.max(1, sessions.length);
  sessions.forEach((session, at) => {
    session.onDrainSlot({ afterMs: Math.floor(at * slotMs), windowMs: Math.max(1, Math.ceil(slotMs)), reason });
  });
}
