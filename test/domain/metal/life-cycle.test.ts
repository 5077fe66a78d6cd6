import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  isBusyState,
  isRestState,
  type MachineMove,
  type MachineState,
  machineStates,
  moveMachine,
  moves,
} from '../../../domain/metal/life-cycle.ts';
import {
  claimOf,
  type DestructiveFact,
  endMove,
  type Remains,
  type RunEnd,
  type RunKind,
  remainsOf,
  staysIn,
  worseRemains,
} from '../../../domain/metal/run-ends.ts';

const allMoves = Object.keys(moves) as MachineMove[];
const anyMove = fc.constantFrom(...allMoves);
const anyState = fc.constantFrom(...machineStates);

describe('life of a machine', () => {
  it('H-20 no order of moves leaves the table, and none leads out of deleted, or out of retired to anything but deletion', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(anyMove, anyState), { maxLength: 40 }), (steps) => {
        let state: MachineState = 'registered';
        for (const [move, before] of steps) {
          const next = moveMachine(move, state, before);
          if (next === null) continue;
          assert.ok(moves[move].from.includes(state));
          assert.ok(machineStates.includes(next));
          assert.notEqual(state, 'deleted');
          if (state === 'retired') assert.equal(next, 'deleted');
          state = next;
        }
      }),
    );
  });

  it('H-20 a quarantine reaches every state that a machine can be in, and never overwrites retired or deleted', () => {
    for (const state of machineStates) {
      const expected = ['retired', 'deleted', 'quarantined'].includes(state) ? null : 'quarantined';
      assert.equal(moveMachine('quarantine', state), expected, state);
    }
  });

  it('a run that touched nothing gives back what it found, and never the state of another run', () => {
    for (const state of machineStates.filter(isBusyState)) {
      assert.equal(moveMachine('untouched', state), null);
      for (const before of machineStates) assert.equal(moveMachine('untouched', state, before), isRestState(before) ? before : null);
    }
  });

  it('M58 out of quarantine leads a person, a wipe run or deletion, and nothing else', () => {
    assert.deepEqual(
      allMoves.filter((move) => moveMachine(move, 'quarantined', 'available') !== null),
      ['retire', 'override', 'delete'],
    );
  });
});

const kinds: readonly RunKind[] = ['provision', 'retire', 'inspect', 'rotate-bmc'];
const anyFact = fc.record<DestructiveFact>({
  kind: fc.constantFrom('disk.wipe', 'deploy.image', 'boot.kexec'),
  order: fc.integer({ min: 1, max: 1_000 }),
  neverBegan: fc.boolean(),
  proven: fc.boolean(),
});
const fact = (kind: DestructiveFact['kind'], order: number, more: Partial<DestructiveFact> = {}): DestructiveFact => ({
  kind,
  order,
  neverBegan: false,
  proven: false,
  ...more,
});

describe('the end of a run', () => {
  it('M49 only a proven wipe behind the last write makes clean: a failed one, an unproven one, and one before a write are dirty', () => {
    const rows: readonly [string, readonly DestructiveFact[], Remains][] = [
      ['nothing', [], 'untouched'],
      ['never began', [fact('disk.wipe', 1, { neverBegan: true })], 'untouched'],
      ['no evidence', [fact('disk.wipe', 1)], 'dirty'],
      ['proven', [fact('disk.wipe', 1, { proven: true })], 'clean'],
      ['written after', [fact('disk.wipe', 1, { proven: true }), fact('deploy.image', 2)], 'dirty'],
      ['write never began', [fact('disk.wipe', 1, { proven: true }), fact('deploy.image', 2, { neverBegan: true })], 'clean'],
      ['wiped again', [fact('deploy.image', 2), fact('disk.wipe', 3, { proven: true })], 'clean'],
      ['second wipe failed', [fact('disk.wipe', 1, { proven: true }), fact('disk.wipe', 2)], 'dirty'],
      ['started', [fact('disk.wipe', 1, { proven: true }), fact('boot.kexec', 2)], 'dirty'],
    ];
    for (const [name, facts, expected] of rows) assert.equal(remainsOf(facts), expected, name);
  });

  it('M49 in whatever order facts come, clean means that the last that began is a proven wipe', () => {
    fc.assert(
      fc.property(fc.uniqueArray(anyFact, { selector: ({ order }) => order, maxLength: 8 }), (facts) => {
        const begun = facts.filter(({ neverBegan }) => !neverBegan).sort((a, b) => a.order - b.order);
        const last = begun.at(-1);
        const expected = last === undefined ? 'untouched' : last.kind === 'disk.wipe' && last.proven ? 'clean' : 'dirty';
        assert.equal(remainsOf(facts), expected);
      }),
    );
  });

  it('a claim never makes it better', () => {
    assert.equal(worseRemains('dirty', 'untouched'), 'dirty');
    assert.equal(worseRemains('untouched', 'dirty'), 'dirty');
    assert.equal(worseRemains('clean', 'untouched'), 'clean');
  });

  it('every kind of run from every state that it may begin in ends in a state of the table, and dirty always quarantines', () => {
    const ends: readonly (readonly [RunEnd, Remains | null])[] = [
      ['done', null],
      ['failed', 'untouched'],
      ['failed', 'clean'],
      ['cancelled', 'dirty'],
    ];
    for (const kind of kinds) {
      for (const before of machineStates) {
        const claim = claimOf[kind];
        const claimed = claim === null ? null : moveMachine(claim, before);
        if (claimed === null && !staysIn[kind].includes(before)) continue;
        const held = claimed ?? before;
        for (const [end, remains] of ends) {
          const move = endMove({ kind, end, remains, moved: claimed !== null });
          const after = move === null ? held : moveMachine(move, held, before);
          // Only an inspection is never clean: it destroys nothing.
          if (kind === 'inspect' && remains === 'clean') continue;
          assert.ok(
            (after !== null && isRestState(after)) || (move === 'quarantine' && held === 'quarantined'),
            `${kind} from ${before}: ${end} ${remains}`,
          );
          if (remains === 'dirty') assert.ok(after === 'quarantined' || held === 'quarantined', `${kind} from ${before}`);
        }
      }
    }
  });
});
