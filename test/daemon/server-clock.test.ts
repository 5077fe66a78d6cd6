import assert from 'node:assert/strict';
import fc from 'fast-check';
import { createServerClock } from '../../daemon/trust/server-clock.ts';
import { hour, minute, second } from '../../domain/time.ts';

/** A machine whose two clocks a test moves by hand. */
function machine({ wallMs = 1_000_000_000_000, steadyMs = 5_000 } = {}) {
  const source = { wall: wallMs, steady: steadyMs };
  return {
    pass: (ms: number): void => {
      source.wall += ms;
      source.steady += ms;
    },
    setWall: (ms: number): void => void (source.wall = ms),
    source: { wallMs: () => source.wall, steadyMs: () => source.steady },
  };
}

describe('server time in the daemon', () => {
  const serverMs = 1_000_000_000_000;

  for (const offMs of [90 * second, -90 * second, 2 * hour, -2 * hour]) {
    it(`FRM-010 a machine ${offMs / 1000} s off follows Welcome, and not its own clock after that`, () => {
      const m = machine({ wallMs: serverMs + offMs });
      const clock = createServerClock(m.source);
      assert.equal(clock.isKnown(), false);
      assert.equal(clock.now(), serverMs + offMs, 'nothing else is known');
      const sentAtSteadyMs = clock.steadyMs();
      m.pass(200);
      clock.observe({ serverTimeMs: serverMs, sentAtSteadyMs });
      assert.ok(clock.now() >= serverMs && clock.now() <= serverMs + 200);
      m.setWall(0);
      m.pass(minute);
      assert.ok(clock.now() >= serverMs + minute && clock.now() <= serverMs + minute + 200, 'a person who sets the clock moves nothing');
    });
  }

  it('a slow answer turns the clock back no more than it proves', () => {
    const m = machine({ wallMs: serverMs });
    const clock = createServerClock(m.source);
    clock.observe({ serverTimeMs: serverMs, sentAtSteadyMs: clock.steadyMs() });
    const sentAtSteadyMs = clock.steadyMs();
    m.pass(10 * second);
    // The server stamped the answer when the question came; it took the rest of the time to arrive.
    clock.observe({ serverTimeMs: serverMs, sentAtSteadyMs });
    assert.equal(clock.now(), serverMs + 10 * second);
    const later = clock.steadyMs();
    m.pass(second);
    clock.observe({ serverTimeMs: serverMs + 5 * second, sentAtSteadyMs: later });
    assert.equal(clock.now(), serverMs + 6 * second, 'backwards to the latest moment the message allows');
  });

  it('an unasked message moves it forwards only', () => {
    const m = machine({ wallMs: serverMs });
    const clock = createServerClock(m.source);
    clock.observe({ serverTimeMs: serverMs, sentAtSteadyMs: clock.steadyMs() });
    clock.observe({ serverTimeMs: serverMs - hour, sentAtSteadyMs: null });
    assert.equal(clock.now(), serverMs);
    clock.observe({ serverTimeMs: serverMs + minute, sentAtSteadyMs: null });
    assert.equal(clock.now(), serverMs + minute);
  });

  it('a gateway that lies about the time cannot bring it under what signed statements prove', () => {
    const m = machine({ wallMs: serverMs });
    const clock = createServerClock(m.source, serverMs - 5 * minute);
    clock.proves(serverMs);
    clock.proves(serverMs - hour);
    assert.equal(clock.floorMs, serverMs);
    clock.observe({ serverTimeMs: serverMs - 24 * hour, sentAtSteadyMs: clock.steadyMs() });
    assert.equal(clock.now(), serverMs);
  });

  it('FRM-010 a signer whose clock is far ahead moves the floor a little past what messages say, however often it signs', () => {
    const m = machine({ wallMs: serverMs });
    const clock = createServerClock(m.source);
    clock.observe({ serverTimeMs: serverMs, sentAtSteadyMs: clock.steadyMs() });
    for (let n = 0; n < 100; n++) clock.proves(serverMs + 24 * hour);
    assert.equal(clock.floorMs, serverMs + 5 * minute);
    m.pass(0.25);
    clock.proves(serverMs + 24 * hour);
    assert.equal(clock.floorMs, serverMs + 5 * minute, 'whole milliseconds: marks.json reads back nothing else');
    clock.observe({ serverTimeMs: serverMs, sentAtSteadyMs: clock.steadyMs() });
    clock.proves(serverMs + 24 * hour);
    assert.equal(clock.floorMs, serverMs + 5 * minute);
  });

  it('C48 a machine that slept is late by nothing: the steady clock goes on in suspend', () => {
    const m = machine({ wallMs: serverMs });
    const clock = createServerClock(m.source);
    clock.observe({ serverTimeMs: serverMs, sentAtSteadyMs: clock.steadyMs() });
    m.pass(25 * hour);
    assert.equal(clock.now(), serverMs + 25 * hour);
  });

  it('after any message the estimate lies in the interval the message proves, and never under the floor', () => {
    const message = fc.record({ skew: fc.integer({ min: -7_200_000, max: 7_200_000 }), rtt: fc.nat(60_000), pause: fc.nat(600_000) });
    fc.assert(
      fc.property(fc.array(message, { minLength: 1, maxLength: 20 }), fc.nat(10_000), (messages, floorBy) => {
        const m = machine({ wallMs: serverMs });
        const floor = serverMs - 1_000_000 + floorBy;
        const clock = createServerClock(m.source, floor);
        for (const { skew, rtt, pause } of messages) {
          m.pass(pause);
          const sentAtSteadyMs = clock.steadyMs();
          m.pass(rtt);
          clock.observe({ serverTimeMs: serverMs + skew, sentAtSteadyMs });
          assert.ok(clock.now() >= Math.max(floor, serverMs + skew));
          assert.ok(clock.now() <= Math.max(floor, serverMs + skew + rtt));
        }
      }),
    );
  });
});
