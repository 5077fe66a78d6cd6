/**
 * Server time, as far as messages prove it (FRM-010). Commands, certificates and signers expire by this clock, never by the
 * machine's own, which may be hours off.
 *
 * A message that carries server time T, received at R in answer to something sent at S, proves that server time at R lay within
 * [T, T + (R - S)]. The estimate moves into that interval and no further: forwards to its lower end, backwards to its upper end, so a
 * slow answer never turns the clock back more than the message proves. An unasked message proves the lower end only.
 *
 * Between messages the clock follows the time since boot, suspend included, and not the wall clock, which a person may set.
 *
 * Threat: a gateway that lies about the time, to make an expired command acceptable. Signed statements set a floor (the join
 * response, accepted commands) under which no message can bring the clock; the floor is kept over restarts by marks.json. A
 * gateway that claims a later time only stops work, which it could do anyway, and only while it claims it: what
 * messages say never becomes part of the floor.
 */
import { minute } from '../../domain/time.ts';

/** How far a signed statement may move the floor past what messages say: one signer with a bad clock must not stop a node. */
const floorStepMs = 5 * minute;

export interface ClockSource {
  /** The machine's own clock, Unix milliseconds. */
  wallMs(): number;
  /** Milliseconds since some fixed moment; never set back, goes on in suspend. */
  steadyMs(): number;
}

export interface ServerClock {
  /** Best estimate of server time; the machine's own clock until a message told the time. */
  now(): number;
  /** A message of this run told the time. */
  isKnown(): boolean;
  steadyMs(): number;
  observe(message: { serverTimeMs: number; sentAtSteadyMs: number | null }): void;
  /** A signed statement says that this much time has passed; it counts up to a little past what messages say, whatever the floor. */
  proves(statedMs: number): void;
  /** What signed statements prove; no message moves it. */
  readonly floorMs: number;
  /** Server time minus the machine's own clock; null before it is known. */
  offsetMs(): number | null;
}

export function createServerClock(source: ClockSource, floorMs = 0): ServerClock {
  let floor = floorMs;
  let base: { readonly serverMs: number; readonly steadyMs: number } | null = null;
  const estimate = (): number => (base === null ? source.wallMs() : base.serverMs + (source.steadyMs() - base.steadyMs));
  const now = (): number => Math.max(floor, estimate());
  return {
    now,
    isKnown: () => base !== null,
    steadyMs: () => source.steadyMs(),
    observe({ serverTimeMs, sentAtSteadyMs }) {
      const steadyMs = source.steadyMs();
      const upper = sentAtSteadyMs === null ? Number.POSITIVE_INFINITY : serverTimeMs + Math.max(0, steadyMs - sentAtSteadyMs);
      // Before the first message the estimate is the machine's clock, which proves nothing: an unasked message sets it.
      const held = base === null && sentAtSteadyMs === null ? serverTimeMs : estimate();
      base = { serverMs: Math.min(Math.max(held, serverTimeMs), upper), steadyMs };
    },
    proves(statedMs) {
      // The bare estimate: measured from the floor itself, each statement would carry it another step.
      floor = Math.max(floor, Math.floor(Math.min(statedMs, estimate() + floorStepMs)));
    },
    get floorMs() {
      return floor;
    },
    offsetMs: () => (base === null ? null : Math.round(now() - source.wallMs())),
  };
}
