/** What a rotation believes of the messages it gets: the matrix of validators, without a server. */
import assert from 'node:assert/strict';
import { type Code, ControlError } from '../../domain/errors.ts';
import {
  type Phase,
  parseAbort,
  parseExclude,
  parseForce,
  parsePause,
  parseStart,
  phases,
} from '../../workflows/rotate-command-root/messages.ts';
import { RotationState } from '../../workflows/rotate-command-root/state.ts';
import { maxOverrides } from '../../workflows/shared/lifecycle-state.ts';
import { Undecodable } from '../../workflows/shared/undecodable.ts';
import { payloadConverter } from '../../workflows/tolerant-converter.ts';

const signed = { actor: 'ann', reason: 'maintenance' };

function refusal(run: () => unknown): { code: Code; message: string } {
  try {
    run();
  } catch (error) {
    assert.ok(error instanceof ControlError, String(error));
    return { code: error.code, message: error.message };
  }
  throw new assert.AssertionError({ message: 'it was accepted' });
}

const stateAt = (phase: Phase): RotationState => {
  const state = new RotationState('rotate-command-root/r', { actor: '', reason: '' }, 0);
  state.enter(phase, 0);
  return state;
};

describe('rotateCommandRoot: messages', () => {
  const garbage: readonly [name: string, value: unknown, says: RegExp][] = [
    ['nothing', undefined, /^force: expected an object with phase, actor, reason, approvals, got nothing/],
    ['null', null, /expected an object with phase, actor, reason, approvals, got null/],
    ['a number', 7, /got a number/],
    ['a list', [signed], /got a list/],
    ['an unreadable payload', new Undecodable('x'), /got a payload that cannot be read/],
    [
      'an empty object',
      {},
      /phase must be one of processes, fleet, signers, confirm, got nothing; actor must be a text that is not empty, got nothing; reason must be/,
    ],
    ['a phase that is none', { phase: 'flet', ...signed }, /phase must be one of processes, fleet, signers, confirm, got flet$/],
    ['no reason', { phase: 'fleet', actor: 'ann' }, /^force: reason must be a text that is not empty, got nothing$/],
    ['a blank reason', { phase: 'fleet', actor: 'ann', reason: '  ' }, /reason must be a text that is not empty, got a string/],
    ['a long reason', { phase: 'fleet', actor: 'ann', reason: 'r'.repeat(1_001) }, /reason has 1001 characters, at most 1000 are allowed/],
    [
      'an actor that is no text',
      { phase: 'fleet', actor: { name: 'ann' }, reason: 'x' },
      /actor must be a text that is not empty, got a object/,
    ],
    ['control characters', { phase: 'fleet', actor: 'a\u0007nn', reason: 'x' }, /actor contains control characters/],
    [
      'a misspelt field',
      { phase: 'fleet', ...signed, raeson: 'x' },
      /raeson is not a known field \(known: phase, actor, reason, approvals\)/,
    ],
  ];
  for (const [name, value, says] of garbage) {
    it(`H-08 force refuses ${name}`, () => {
      const { code, message } = refusal(() => parseForce(value));
      assert.equal(code, 'INVALID_INPUT');
      assert.match(message, says);
    });
  }

  for (const phase of ['drop', 'waiting-drop', 'dropping']) {
    it(`H-03 force never opens the wait before the drop (${phase}) and names the command that can`, () => {
      const { code, message } = refusal(() => parseForce({ phase, ...signed }));
      assert.equal(code, 'INVALID_STATE');
      assert.match(
        message,
        /^force does not open the wait before the drop: .*better-compute pki rotate-command-root --stage drop --force --reason <why>$/,
      );
    });
  }

  it('H-08 force, exclude, abort and pause take what is whole, trimmed', () => {
    assert.deepEqual(parseForce({ phase: 'fleet', actor: ' ann ', reason: 'x' }), { phase: 'fleet', actor: 'ann', reason: 'x' });
    assert.deepEqual(parseExclude({ node: 'node-1', ...signed }), { node: 'node-1', ...signed });
    assert.deepEqual(parseAbort(signed), signed);
    assert.deepEqual(parsePause(signed), signed);
  });

  for (const parse of [parseExclude, parseAbort, parsePause]) {
    it(`H-08 ${parse.name} refuses a message without a reason`, () => {
      const { code, message } = refusal(() => parse({ node: 'node-1', actor: 'ann' }));
      assert.equal(code, 'INVALID_INPUT');
      assert.match(message, /reason must be a text that is not empty, got nothing/);
    });
  }

  it('starts with nothing, null, an empty object, or an actor and a reason; refuses anything else', () => {
    for (const value of [undefined, null, {}]) assert.deepEqual(parseStart(value), { actor: '', reason: '' });
    assert.deepEqual(parseStart(signed), signed);
    for (const value of ['now', 1, [], new Undecodable('x'), { force: true }])
      assert.equal(refusal(() => parseStart(value)).code, 'INVALID_INPUT');
  });

  const passed: readonly [gate: string, until: Phase][] = [
    ['processes', 'switching'],
    ['fleet', 'switching'],
    ['signers', 'waiting-signers'],
    ['confirm', 'confirming'],
  ];
  for (const [gate, until] of passed) {
    it(`a force of ${gate} is taken up to ${until} and refused after`, () => {
      for (const phase of phases) {
        const take = (): unknown => stateAt(phase).readForce({ phase: gate, ...signed });
        if (phases.indexOf(phase) <= phases.indexOf(until)) assert.doesNotThrow(take, phase);
        else assert.equal(refusal(take).code, 'INVALID_STATE', phase);
      }
    });
  }

  it('H-04 an abort is taken in every phase until the drop is done', () => {
    for (const phase of phases.filter((name) => name !== 'done')) assert.doesNotThrow(() => stateAt(phase).readAbort(signed));
    const dropped = stateAt('confirming');
    dropped.dropped = true;
    assert.deepEqual(
      refusal(() => dropped.readAbort(signed)),
      {
        code: 'INVALID_STATE',
        message: 'the old root has been dropped: start a new rotation instead',
      },
    );
  });

  it('an ended rotation takes nothing', () => {
    const ended = stateAt('done');
    ended.outcome = 'dropped';
    assert.match(
      refusal(() => ended.readExclude({ node: 'n', ...signed })).message,
      /^the rotation has ended \(dropped\): there is nothing to exclude$/,
    );
  });

  it('a flood of overrides ends', () => {
    const state = stateAt('waiting-fleet');
    for (let i = 0; i < maxOverrides; i += 1) state.overrides.set(`exclude/${i}`, { kind: 'exclude', subject: String(i), ...signed });
    assert.equal(refusal(() => state.readExclude({ node: 'one-more', ...signed })).code, 'RATE_LIMITED');
  });

  it('an abort lifts a pause', () => {
    const state = stateAt('waiting-fleet');
    state.pause(signed, 1);
    state.startAbort(signed);
    assert.equal(state.held, false);
  });

  it('H-18 closed gates report four times in a run at most', () => {
    const state = stateAt('waiting-fleet');
    const reports = ['fleet', 'fleet', 'fleet', 'fleet', 'confirm', 'confirm'].map((gate) => state.nextPatience(gate as 'fleet'));
    assert.deepEqual(reports, [3_000, 60_000, 600_000, null, 20_000, null]);
  });

  it('a payload that cannot be read becomes a value, never an exception', () => {
    const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
    for (const payload of [
      { metadata: { encoding: encode('json/plain') }, data: encode('{"broken') },
      { metadata: { encoding: encode('binary/undecodable') }, data: encode('') },
      { metadata: { encoding: encode('who/knows') }, data: encode('x') },
      { metadata: {}, data: encode('x') },
    ]) {
      assert.ok(payloadConverter.fromPayload(payload) instanceof Undecodable);
    }
  });
});
