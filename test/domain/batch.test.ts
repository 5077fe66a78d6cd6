/** The rules of a batch that need no key: its bounds, its life, what its commands act on, and the portions it is let go in. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  batchWindow,
  judgeReason,
  maxBatchPayloads,
  maxLeafPayload,
  maxLeaves,
  maxPageLeaves,
  maxReasonLength,
} from '../../domain/batch/limits.ts';
import { batchStateAt, batchStates, firstBatchState, isBatchState, mayMoveBatch, takesCommands } from '../../domain/batch/states.ts';
import { formatSubject, machineOfSubject, parseSubject } from '../../domain/batch/subjects.ts';
import { type NextWave, nextWave, oneWave, problemsOfWavePlan, type WavePlan, type WaveProgress } from '../../domain/batch/waves.ts';
import { commandKinds } from '../../domain/commands/kinds.ts';
import { bounds } from '../../proto/bounds.ts';

describe('bounds of a batch', () => {
  it('QUO-017 QUO-018 BAT-005 BAT-044 are those of the protocol', () => {
    assert.deepEqual(
      [maxLeaves, maxLeafPayload, maxBatchPayloads, maxPageLeaves],
      [50_000, bounds.leafPayload, bounds.batchPayloads, 5_000],
    );
    assert.deepEqual(batchWindow, { minMs: 60_000, maxMs: 259_200_000, defaultMs: 86_400_000, moduleMaxMs: 2_592_000_000 });
  });

  it('BAT-041 a reason has 1 to 500 characters, counted as people count', () => {
    assert.equal(maxReasonLength, 500);
    assert.equal(judgeReason('x'.repeat(500)), null);
    assert.equal(judgeReason('\u{1f6e0}'.repeat(500)), null, 'a sign outside of the first plane is one character');
    assert.deepEqual(judgeReason('x'.repeat(501)), {
      reason: 'reason-too-long',
      message: 'the reason has 501 characters, at most 500 are allowed',
    });
    for (const empty of ['', ' \n ']) assert.equal(judgeReason(empty)?.reason, 'empty-reason');
  });

  it('BAT-041 a reason holds nothing that a terminal obeys instead of showing it', () => {
    assert.equal(judgeReason('kernel update,\nsee change 7'), null);
    const cases: [string, RegExp][] = [
      ['x\u001b[2K', /holds U\+001B at position 1/],
      ['\u202egnp.exe', /U\+202E at position 0/],
      ['a\u2066b', /U\+2066/],
      ['a\u0000', /U\+0000/],
      ['a\u009b31m', /U\+009B/],
      ['a\rb', /U\+000D/],
      ['a\ud800', /U\+D800/],
    ];
    for (const [text, message] of cases) assert.match(judgeReason(text)?.message ?? '', message);
  });
});

describe('the life of a batch', () => {
  it('BAT-063 has four states, and no way out of an end', () => {
    assert.deepEqual(batchStates, ['pending', 'approved', 'expired', 'cancelled']);
    const moves = batchStates.flatMap((from) => batchStates.filter((to) => mayMoveBatch(from, to)).map((to) => `${from} → ${to}`));
    assert.deepEqual(moves, [
      'pending → approved',
      'pending → expired',
      'pending → cancelled',
      'approved → expired',
      'approved → cancelled',
    ]);
    assert.deepEqual([isBatchState('pending'), isBatchState('done'), isBatchState(0)], [true, false, false]);
  });

  it('BAT-058 A-PKI-47 past its end it reads as expired before anybody records it; an end stays what it is', () => {
    const at = (state: 'pending' | 'approved' | 'expired' | 'cancelled', now: number): string =>
      batchStateAt({ state, notAfterMs: 100 }, now);
    assert.deepEqual(
      [at('pending', 100), at('pending', 101), at('approved', 101), at('cancelled', 101), at('expired', 50)],
      ['pending', 'expired', 'expired', 'cancelled', 'expired'],
    );
  });

  it('BAT-012 BAT-020 takes commands while it is pending or approved; without approvers it is approved at once', () => {
    assert.deepEqual(batchStates.filter(takesCommands), ['pending', 'approved']);
    assert.deepEqual([firstBatchState(0), firstBatchState(1)], ['approved', 'pending']);
  });
});

describe('subjects', () => {
  it('QUO-024 each form names its machine: the node, the site agent, the target', () => {
    const machine = (text: string): string | null => {
      const subject = parseSubject(text);
      return subject && machineOfSubject(subject);
    };
    assert.deepEqual(['node_1', 'bmc:agent_1/10.0.0.5', 'bmc:agent_1/[fe80::1]:443', 'node:node_9'].map(machine), [
      'node_1',
      'agent_1',
      'agent_1',
      'node_9',
    ]);
  });

  it('QUO-026 what has none of the forms is no subject', () => {
    const wrong = [
      '',
      'node 1',
      'bmc:agent',
      'bmc:agent/',
      'bmc:/10.0.0.5',
      'bmc:agent/10.0.0.5/x',
      'bmc:agent/10.0.0.5 ',
      'node:',
      'node:bmc:x',
      'n\u043ede_1',
      'node_1\u200b',
      'x'.repeat(64),
      'host:agent/x',
    ];
    assert.deepEqual(
      wrong.filter((text) => parseSubject(text) !== null),
      [],
    );
  });

  it('QUO-028 a subject reads back as it was written', () => {
    const id = fc.stringMatching(/^[A-Za-z0-9._-]{1,63}$/);
    const subject = fc.oneof(
      id.map((nodeId) => ({ form: 'node' as const, nodeId })),
      id.map((nodeId) => ({ form: 'target' as const, nodeId })),
      fc.tuple(id, fc.stringMatching(/^[A-Za-z0-9.:_[\]-]{1,255}$/)).map(([agent, address]) => ({ form: 'bmc' as const, agent, address })),
    );
    fc.assert(fc.property(subject, (one) => assert.deepEqual(parseSubject(formatSubject(one)), one)));
  });

  it('QUO-028 every kind says what it acts on', () => {
    for (const [kind, { subject }] of Object.entries(commandKinds)) assert.ok(['node', 'bmc', 'target'].includes(subject), kind);
  });
});

describe('waves', () => {
  const plan: WavePlan = { size: 10, maxFailures: 1, pauseMs: 1_000, healthGate: true };
  const at = (change: Partial<WaveProgress>): WaveProgress => ({
    total: 25,
    released: 0,
    running: 0,
    failed: 0,
    unhealthy: 0,
    waveEndedAtMs: null,
    nowMs: 0,
    ...change,
  });
  const next = (change: Partial<WaveProgress>, planned: Partial<WavePlan> = {}): NextWave => nextWave({ ...plan, ...planned }, at(change));

  it('begins with the first wave, and goes on when the one before has ended, its machines are back and the pause has passed', () => {
    assert.deepEqual(next({}), { kind: 'release', from: 0, to: 10 });
    assert.deepEqual(next({ released: 10, running: 3 }), { kind: 'wait', untilMs: null, why: '3 of 10 released are still running' });
    assert.deepEqual(next({ released: 10, unhealthy: 2, waveEndedAtMs: 0 }), {
      kind: 'wait',
      untilMs: null,
      why: '2 machine(s) are not connected again',
    });
    assert.deepEqual(next({ released: 10, waveEndedAtMs: 500, nowMs: 1_499 }), {
      kind: 'wait',
      untilMs: 1_500,
      why: 'the pause between waves',
    });
    assert.deepEqual(next({ released: 10, waveEndedAtMs: 500, nowMs: 1_500 }), { kind: 'release', from: 10, to: 20 });
    assert.deepEqual(next({ released: 20, waveEndedAtMs: 0, nowMs: 9_000 }), { kind: 'release', from: 20, to: 25 });
    assert.deepEqual(next({ released: 25, waveEndedAtMs: 0 }), { kind: 'done' });
  });

  it('stops after one failure more than is tolerated, at once, and not when all are sent', () => {
    assert.equal(next({ released: 10, failed: 1, waveEndedAtMs: 0, nowMs: 9_000 }).kind, 'release');
    assert.deepEqual(next({ released: 10, failed: 2, running: 5 }), { kind: 'stop', why: '2 failed, 1 tolerated: 15 of 25 are not sent' });
    assert.equal(next({ released: 25, failed: 9, running: 1 }).kind, 'wait');
    assert.equal(next({ released: 25, failed: 9, waveEndedAtMs: 0 }).kind, 'done');
  });

  it('a share of the batch is rounded up, and never nothing', () => {
    const percent = (value: number, total: number): NextWave =>
      nextWave({ percent: value, maxFailures: 0, pauseMs: 0, healthGate: false }, at({ total }));
    assert.deepEqual(
      [percent(10, 25), percent(1, 25), percent(100, 25)],
      [3, 1, 25].map((to) => ({ kind: 'release', from: 0, to })),
    );
    assert.deepEqual(nextWave(oneWave, at({ total: 50_000 })), { kind: 'release', from: 0, to: 50_000 });
  });

  it('ends a wave before the machine that would be one too many of its label', () => {
    const limited = { maxPerLabel: { label: 'rack', count: 2 } };
    const racks = ['r1', 'r2', 'r1', '', '', '', 'r2', 'r1', 'r3', 'r3'];
    assert.deepEqual(next({ labelsAhead: racks }, limited), { kind: 'release', from: 0, to: 7 });
    assert.deepEqual(next({ labelsAhead: ['r1', 'r1', 'r1'] }, { maxPerLabel: { label: 'rack', count: 1 } }), {
      kind: 'release',
      from: 0,
      to: 1,
    });
  });

  it('every batch ends: asked again and again, each member is released once and in order', () => {
    const plans = fc.record({
      size: fc.integer({ min: 1, max: 40 }),
      maxFailures: fc.constant(50_000),
      pauseMs: fc.nat(5),
      healthGate: fc.boolean(),
    });
    fc.assert(
      fc.property(plans, fc.integer({ min: 1, max: 200 }), (planned, total) => {
        let progress = at({ total });
        for (let asked = 0; ; asked++) {
          const step = nextWave(planned, progress);
          if (step.kind === 'done') break;
          assert.ok(asked < 1_000 && step.kind !== 'stop');
          if (step.kind === 'wait') progress = { ...progress, nowMs: step.untilMs ?? progress.nowMs + 1 };
          else {
            assert.equal(step.from, progress.released);
            assert.ok(step.to > step.from && step.to - step.from <= planned.size);
            progress = { ...progress, released: step.to, waveEndedAtMs: progress.nowMs };
          }
        }
        assert.equal(progress.released, total);
      }),
    );
  });

  it('a plan that makes no sense says everything that is wrong with it', () => {
    assert.deepEqual(problemsOfWavePlan(plan), []);
    assert.deepEqual(problemsOfWavePlan(oneWave), []);
    const wrong: [Partial<WavePlan>, RegExp][] = [
      [{ percent: 5 }, /a size or a percent, one of the two/],
      [{ size: 0 }, /size 0 is not a whole number from 1 to 50000/],
      [{ maxFailures: -1 }, /maxFailures -1 is not/],
      [{ pauseMs: 86_400_001 }, /pauseMs 86400001 is not/],
      [{ maxPerLabel: { label: 'rack 1', count: 2 } }, /maxPerLabel.label "rack 1" is no label/],
      [{ maxPerLabel: { label: 'rack', count: 0 } }, /maxPerLabel.count 0 is not/],
      [{ healthGate: 'yes' as unknown as boolean }, /healthGate yes is neither/],
    ];
    for (const [change, message] of wrong) assert.match(problemsOfWavePlan({ ...plan, ...change }).join('\n'), message);
    assert.equal(problemsOfWavePlan({ maxFailures: -1, pauseMs: -1, healthGate: true }).length, 3);
    assert.match(problemsOfWavePlan({ ...plan, size: 1.5 }).join(), /size 1.5/);
  });
});
