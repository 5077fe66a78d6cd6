/** The life of a workload issuer's keys, on a clock that only the test moves. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { type Code, ControlError } from '../../domain/errors.ts';
import { minute, second } from '../../domain/time.ts';
import {
  addWorkloadKey,
  assertWorkloadRing,
  maxWorkloadKeys,
  promoteWorkloadKey,
  retireOpensAt,
  retireWorkloadKey,
  signingKeyOf,
  tokenSeconds,
  type WorkloadRing,
  workloadTimes,
} from '../../domain/workload/keys.ts';

const t0 = Date.UTC(2026, 0, 15, 12);
const empty: WorkloadRing = new Map();
const first = addWorkloadKey(empty, { kid: 'a', now: t0 }).ring;
const both = addWorkloadKey(first, { kid: 'b', now: t0 }).ring;
const promotedAt = t0 + 5 * minute;
const promoted = promoteWorkloadKey(both, { kid: 'b', now: promotedAt }).ring;

/** The instant that a refusal names. */
function opensAtOf(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return (error as ControlError).details['opensAt'];
  }
  return assert.fail('it was not refused');
}

const refusal =
  (code: Code, reason: string, message: RegExp) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof ControlError, String(error));
    assert.equal(error.code, code);
    assert.equal(error.details['reason'], reason);
    assert.match(error.message, message);
    return true;
  };

describe('the keys of a workload issuer', () => {
  it('WID-018 adds a key beside the one that signs, which goes on signing; the first signs at once', () => {
    assert.equal(signingKeyOf(first), 'a');
    assert.deepEqual([...both.keys()], ['a', 'b']);
    assert.equal(signingKeyOf(both), 'a');
    assert.deepEqual(both.get('b'), { state: 'waiting', addedAt: t0 });
    assert.deepEqual(addWorkloadKey(both, { kid: 'b', now: t0 + minute }), { ring: both, changed: false });
  });

  it('WID-019 promotes a key once every copy of the key set that a verifier may hold has it (C39: not before 5 minutes)', () => {
    const early = { kid: 'b', now: promotedAt - 1 };
    assert.throws(
      () => promoteWorkloadKey(both, early),
      refusal('INVALID_STATE', 'promote-too-early', /^not promoting key b before 2026-01-15T12:05:00Z: a verifier may/),
    );
    assert.equal(
      opensAtOf(() => promoteWorkloadKey(both, early)),
      promotedAt,
    );
    assert.equal(signingKeyOf(promoted), 'b');
    assert.deepEqual(promoted.get('a'), { state: 'former', addedAt: t0, stoppedAt: promotedAt });
    assert.deepEqual(promoteWorkloadKey(promoted, { kid: 'b', now: promotedAt }), { ring: promoted, changed: false });
  });

  it('WID-019 takes a promotion back at once: a key that signed before is in every key set', () => {
    const back = promoteWorkloadKey(promoted, { kid: 'a', now: promotedAt + 1 }).ring;
    assert.equal(signingKeyOf(back), 'a');
    assert.deepEqual(back.get('b'), { state: 'former', addedAt: t0, stoppedAt: promotedAt + 1 });
  });

  it('WID-020 retires a former key 16 minutes after it stopped signing and not a millisecond before', () => {
    const opensAt = promotedAt + 16 * minute;
    assert.equal(retireOpensAt({ state: 'former', addedAt: t0, stoppedAt: promotedAt }), opensAt);
    assert.throws(
      () => retireWorkloadKey(promoted, { kid: 'a', now: opensAt - 1 }),
      refusal('INVALID_STATE', 'retire-too-early', /^not retiring key a before 2026-01-15T12:21:00Z: a token it signed may/),
    );
    assert.throws(
      () => retireWorkloadKey(promoted, { kid: 'a', now: opensAt - second }),
      refusal('INVALID_STATE', 'retire-too-early', /not retiring/),
    );
    assert.equal(
      opensAtOf(() => retireWorkloadKey(promoted, { kid: 'a', now: opensAt - 1 })),
      opensAt,
    );
    assert.deepEqual([...retireWorkloadKey(promoted, { kid: 'a', now: opensAt }).ring.keys()], ['b']);
  });

  it('WID-020 never retires the key that signs, and takes one that never signed at any time', () => {
    assert.throws(
      () => retireWorkloadKey(both, { kid: 'a', now: t0 + 365 * 24 * 60 * minute }),
      refusal('INVALID_STATE', 'key-signs', /key a signs: promote/),
    );
    assert.deepEqual([...retireWorkloadKey(both, { kid: 'b', now: t0 }).ring.keys()], ['a']);
  });

  it('names a key that is not in the ring, and a ring that is full', () => {
    for (const step of [promoteWorkloadKey, retireWorkloadKey])
      assert.throws(() => step(both, { kid: 'z', now: t0 }), refusal('NOT_FOUND', 'unknown-key', /has no key "z"/));
    let ring = empty;
    for (let at = 0; at < maxWorkloadKeys; at++) ring = addWorkloadKey(ring, { kid: `k${at}`, now: t0 }).ring;
    assert.throws(
      () => addWorkloadKey(ring, { kid: 'more', now: t0 }),
      refusal('INVALID_STATE', 'ring-full', /publishes 8 keys already, at most 8/),
    );
    assert.throws(() => signingKeyOf(empty), refusal('INVALID_STATE', 'no-signing-key', /no key that signs/));
  });

  it('refuses a stored ring in which no key signs, two do, or a time is none', () => {
    const bad: [WorkloadRing, RegExp][] = [
      [new Map([['a', { state: 'waiting', addedAt: 1 }]]), /0 of its keys sign/],
      [
        new Map([
          ['a', { state: 'signing', addedAt: 1 }],
          ['b', { state: 'signing', addedAt: 1 }],
        ]),
        /2 of its keys sign/,
      ],
      [new Map([['a', { state: 'signing', addedAt: Number.NaN }]]), /key "a" has a time that is none/],
      [
        new Map([
          ['a', { state: 'signing', addedAt: 1 }],
          ['b', { state: 'former', addedAt: 1, stoppedAt: -1 }],
        ]),
        /key "b" has a time/,
      ],
    ];
    for (const [ring, message] of bad) assert.throws(() => assertWorkloadRing(ring), refusal('INVALID_INPUT', 'key-ring', message));
    for (const ring of [empty, first, both, promoted]) assertWorkloadRing(ring);
  });

  it('WID-008 lets a token live 60 to 900 whole seconds', () => {
    for (const seconds of [60, 61, 899, 900]) assert.equal(tokenSeconds(seconds), seconds);
    for (const seconds of [59, 901, 0, -60, 60.5, Number.NaN, Number.POSITIVE_INFINITY])
      assert.throws(() => tokenSeconds(seconds), refusal('INVALID_INPUT', 'token-lifetime', /lives 60 to 900 s, not/));
  });

  it('WID-017 no token ever fails at a verifier that obeys the cache rule, whatever steps an operator tries and when', () => {
    type Step = 'add' | 'promote' | 'retire' | 'token' | 'fetch';
    const steps = fc.array(
      fc.tuple(fc.constantFrom<Step>('add', 'promote', 'retire', 'token', 'fetch'), fc.integer({ min: 0, max: 400 }), fc.nat(7)),
      { maxLength: 80 },
    );
    fc.assert(
      fc.property(steps, (list) => {
        let now = t0;
        let ring = first;
        let added = 0;
        // Every copy that some verifier may still hold: read just before a step, or just after it.
        let copies: { at: number; kids: readonly string[] }[] = [];
        const tokens: { kid: string; exp: number }[] = [];
        for (const [step, waitS, pick] of list) {
          now += waitS * second;
          const kid = [...ring.keys()][pick % ring.size] as string;
          const before = { at: now, kids: [...ring.keys()] };
          try {
            if (step === 'add') ring = addWorkloadKey(ring, { kid: `n${++added}`, now }).ring;
            if (step === 'promote') ring = promoteWorkloadKey(ring, { kid, now }).ring;
            if (step === 'retire') ring = retireWorkloadKey(ring, { kid, now }).ring;
          } catch (error) {
            if (!(error instanceof ControlError)) throw error;
          }
          if (step === 'token') tokens.push({ kid: signingKeyOf(ring), exp: now + workloadTimes.longestTokenMs });
          assertWorkloadRing(ring);
          copies = [...copies.filter(({ at }) => now - at < workloadTimes.jwksMaxAgeMs), before, { at: now, kids: [...ring.keys()] }];
          for (const token of tokens.filter(({ exp }) => now <= exp))
            for (const { kids } of copies.filter(({ kids: held }) => !held.includes(token.kid)))
              assert.fail(`${token.kid} is not in ${kids.join()}`);
        }
      }),
      { numRuns: 500 },
    );
  });
});
