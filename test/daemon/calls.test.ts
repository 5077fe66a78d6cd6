import assert from 'node:assert/strict';
import { backoffLimits, freshBackoff, nextDial } from '../../daemon/transport/backoff.ts';
import { refusalFacts, refusalOf } from '../../daemon/transport/grpc-status.ts';
import { createMessageCutter } from '../../daemon/transport/message-cutter.ts';
import { nextBeatMs } from '../../daemon/transport/session-stream.ts';
import { day, hour, minute } from '../../domain/time.ts';

describe('calls to the gateway, and when to make them', () => {
  describe('the schedule of dials', () => {
    const ended = { heldMs: 0, pushbackMs: null, reconnectWindowMs: 0 };

    it('B33 grows to its cap and is spread over the whole of it', () => {
      let state = freshBackoff;
      for (let n = 0; n < 20; n++) {
        const most = nextDial(state, ended, { random: () => 0.999_999 });
        assert.equal(nextDial(state, ended, { random: () => 0 }).delayMs, 0);
        assert.ok(most.delayMs <= Math.min(backoffLimits.capMs, 1_000 * 2 ** n));
        state = most.state;
      }
      assert.equal(nextDial(state, ended, { random: () => 0.999_999 }).delayMs, backoffLimits.capMs);
    });

    it('B35 TRN-045 a wish of the gateway is honoured once, capped, with jitter on top', () => {
      const wished = nextDial(freshBackoff, { ...ended, pushbackMs: 5_000 }, { random: () => 0 });
      assert.equal(wished.delayMs, 5_000);
      assert.ok(nextDial(freshBackoff, { ...ended, pushbackMs: 5_000 }, { random: () => 0.5 }).delayMs > 5_000);
      assert.equal(nextDial(wished.state, ended, { random: () => 0 }).delayMs, 0, 'not a second time');
      assert.equal(nextDial(freshBackoff, { ...ended, pushbackMs: 10 * day }, { random: () => 0 }).delayMs, backoffLimits.pushbackCapMs);
    });

    it('a session that held resets it and spreads over the window of its Welcome; one that ended at once does not', () => {
      const tired = { failures: 9 };
      const held = nextDial(tired, { ...ended, heldMs: minute, reconnectWindowMs: 20_000 }, { random: () => 0.5 });
      assert.deepEqual([held.delayMs, held.state.failures], [10_000, 1]);
      assert.equal(nextDial(tired, { ...ended, heldMs: 5, reconnectWindowMs: 20_000 }, { random: () => 0.5 }).state.failures, 10);
    });

    it('500 daemons that lost their gateway in one instant come back spread out', () => {
      const delays = Array.from(
        { length: 500 },
        () => nextDial(freshBackoff, { ...ended, heldMs: hour, reconnectWindowMs: 10_000 }, { random: Math.random }).delayMs,
      );
      assert.ok(delays.every((delay) => delay >= 0 && delay <= 10_000));
      const inSecond = Array.from(
        { length: 10 },
        (_, at) => delays.filter((delay) => Math.min(9, Math.floor(delay / 1_000)) === at).length,
      );
      // 50 each on average: that one has none, or twice as many, does not come by chance in the life of this project.
      assert.ok(Math.min(...inSecond) > 0 && Math.max(...inSecond) <= 2 * 50, inSecond.join(' '));
    });
  });

  it('B43 500 daemons that started in one tick are out of step after three beats, and go further apart', () => {
    const daemons = Array.from({ length: 500 }, () => ({ at: 0 }));
    let fullest = 500;
    for (let beat = 1; beat <= 3; beat += 1) {
      for (const daemon of daemons) daemon.at += nextBeatMs(15_000, Math.random);
      const buckets = new Map<number, number>();
      for (const { at } of daemons) buckets.set(Math.floor(at / 500), (buckets.get(Math.floor(at / 500)) ?? 0) + 1);
      const now = Math.max(...buckets.values());
      assert.ok(now < 500 / 3, `${now} of 500 within half a second of beat ${beat}`);
      fullest = now;
    }
    assert.ok(fullest < 500 / 4, `${fullest} of 500 within half a second of the third beat`);
  });

  it('BND-002 TRN-019 what the gateway sends is refused by its prefix, in words about the gateway', () => {
    const cases: [prefix: number[], code: string, message: string][] = [
      [[0, 0, 0, 0, 61], 'FRAME_TOO_LARGE', 'the gateway sent a message of 61 bytes, more than 60'],
      [[1, 0, 0, 0, 1], 'UNSUPPORTED', 'the gateway sent a compressed message'],
    ];
    for (const [prefix, code, message] of cases)
      assert.throws(() => createMessageCutter(60).push(Buffer.from(prefix)), { name: 'ControlError', code, message });
    const cutter = createMessageCutter(60);
    assert.deepEqual(
      cutter.push(Buffer.from([0, 0, 0, 0, 1, 7, 0, 0])).map((message) => [...message]),
      [[7]],
    );
    assert.equal(cutter.isInMessage, true);
  });

  it('the end of a call: status, reason, wish and time are read from whatever came', () => {
    const cases: [Parameters<typeof refusalOf>[0], string, Partial<ReturnType<typeof refusalFacts>>][] = [
      [undefined, 'UNAVAILABLE', { reason: 'no-status', grpc: 14 }],
      [{}, 'UNAVAILABLE', { reason: 'no-status' }],
      [{ ':status': '503' }, 'UNAVAILABLE', { grpc: 14 }],
      [{ ':status': '401' }, 'UNAUTHENTICATED', { grpc: 16 }],
      [{ 'grpc-status': '7', 'x-bc-reason': 'revoked' }, 'REVOKED', { reason: 'revoked', grpc: 7 }],
      [
        { 'grpc-status': '16', 'x-bc-reason': 'clock-skew', 'x-bc-server-time-ms': '1700000000123' },
        'CLOCK_SKEW',
        { serverTimeMs: 1_700_000_000_123 },
      ],
      [
        { 'grpc-status': '16', 'x-bc-reason': 'clock-skew', date: 'Tue, 14 Nov 2023 22:13:20 GMT' },
        'CLOCK_SKEW',
        { serverTimeMs: 1_700_000_000_000 },
      ],
      [{ 'grpc-status': '8', 'grpc-retry-pushback-ms': '1500' }, 'RATE_LIMITED', { pushbackMs: 1_500 }],
      [{ 'grpc-status': '8', 'retry-after': '2' }, 'RATE_LIMITED', { pushbackMs: 2_000 }],
      [{ 'grpc-status': '99', 'x-bc-reason': 'Not A Reason' }, 'UNAVAILABLE', { reason: '', grpc: 99 }],
    ];
    for (const [headers, code, facts] of cases) {
      const error = refusalOf(headers);
      assert.equal(error?.code, code, JSON.stringify(headers));
      for (const [name, value] of Object.entries(facts))
        assert.equal(refusalFacts(error)[name as keyof ReturnType<typeof refusalFacts>], value, `${JSON.stringify(headers)} ${name}`);
    }
    assert.equal(refusalOf({ 'grpc-status': '0' }), null);
  });
});
