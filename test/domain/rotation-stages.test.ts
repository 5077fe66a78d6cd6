import assert from 'node:assert/strict';
import fc from 'fast-check';
import { ControlError } from '../../domain/errors.ts';
import { abortRotation, addRoot, type CommandRoots, dropRoot, type Step, switchRoot } from '../../domain/rotation/stages.ts';
import { day } from '../../domain/time.ts';

const start: CommandRoots = { signing: 'A', roots: [{ id: 'A', addedAt: 0 }], rotation: null, lastRotation: null, removed: [] };
const ids = (state: CommandRoots): string[] => state.roots.map((root) => root.id);
const add = (state: CommandRoots, rotationId = 'r1', newRoot = 'B'): CommandRoots => addRoot(state, { rotationId, newRoot, now: 10 }).state;
const turn = (state: CommandRoots, rotationId = 'r1'): CommandRoots => switchRoot(state, { rotationId, now: 20 }).state;
const drop = (state: CommandRoots, rotationId = 'r1'): CommandRoots =>
  dropRoot(state, { rotationId, now: 20 + day, opensAt: 20 + day, forcedReason: '' }).state;

function assertRefused(run: () => unknown, code: string, message: RegExp): void {
  assert.throws(run, (error: unknown) => error instanceof ControlError && error.code === code && message.test(error.message));
}

describe('the stages of a command-root rotation', () => {
  it('ROT-002 add trusts both roots and signs under the old one', () => {
    const state = add(start);
    assert.deepEqual(ids(state), ['A', 'B']);
    assert.equal(state.signing, 'A');
    assert.equal(state.rotation?.stage, 'added');
  });

  it('ROT-007 switch signs under the new root and keeps the old one', () => {
    const state = turn(add(start));
    assert.deepEqual(ids(state), ['A', 'B']);
    assert.equal(state.signing, 'B');
    assert.equal(state.rotation?.switchedAt, 20);
  });

  it('ROT-008 drop leaves the new root alone and says why the old one left', () => {
    const state = drop(turn(add(start)));
    assert.deepEqual(ids(state), ['B']);
    assert.equal(state.rotation, null);
    assert.deepEqual(state.removed, [{ id: 'A', switchedAt: 20, removedAt: 20 + day, forcedReason: '' }]);
  });

  it('ROT-012 refuses every step out of order', () => {
    assertRefused(() => turn(start), 'INVALID_STATE', /^switch without add/);
    assertRefused(() => drop(start), 'INVALID_STATE', /^drop without add/);
    assertRefused(() => drop(add(start)), 'INVALID_STATE', /^drop before switch/);
    assertRefused(() => add(add(start), 'r2', 'C'), 'INVALID_STATE', /^rotation r1 is in progress/);
    assertRefused(() => turn(add(start), 'r2'), 'INVALID_STATE', /^rotation r1 is in progress, not r2/);
  });

  it('C14 refuses to add a root that is trusted already', () => {
    assertRefused(() => add(start, 'r1', 'A'), 'INVALID_INPUT', /^root A is already trusted/);
  });

  it('a repeated step changes nothing', () => {
    const added = add(start);
    assert.deepEqual(addRoot(added, { rotationId: 'r1', newRoot: 'X', now: 11 }), { state: added, changed: false });
    const switched = turn(added);
    assert.equal(addRoot(switched, { rotationId: 'r1', newRoot: 'X', now: 21 }).changed, false);
    assert.equal(switchRoot(switched, { rotationId: 'r1', now: 99 }).changed, false);
    const dropped = drop(switched);
    assert.equal(dropRoot(dropped, { rotationId: 'r1', now: 99, opensAt: 0, forcedReason: '' }).changed, false);
    assert.equal(addRoot(dropped, { rotationId: 'r1', newRoot: 'X', now: 99 }).changed, false);
    assert.equal(switchRoot(dropped, { rotationId: 'r1', now: 99 }).changed, false);
  });

  it('H-03 A-PKI-21 drop before its time is refused with the time, and only a forced reason opens it', () => {
    const switched = turn(add(start));
    const early = { rotationId: 'r1', now: 20 + day - 1, opensAt: 20 + day };
    assertRefused(() => dropRoot(switched, { ...early, forcedReason: '' }), 'INVALID_STATE', /^not dropping before 1970-01-02T00:00:00Z/);
    const forced = dropRoot(switched, { ...early, forcedReason: 'key leaked' }).state;
    assert.equal(forced.removed[0]?.forcedReason, 'key leaked');
  });

  it('H-04 an attempt to drop that was judged before an abort does not take the other root', () => {
    const switched = turn(add(start));
    const judged = { rotationId: 'r1', root: 'A', opensAt: 20 + day, forcedReason: '' };
    const aborted = abortRotation(switched, { rotationId: 'r1', now: 21 + day }).state;
    assertRefused(() => dropRoot(aborted, { ...judged, now: 22 + day }), 'INVALID_STATE', /^not dropping root A: rotation r1 was aborted/);
    assert.equal(dropRoot(switched, { ...judged, now: 22 + day }).changed, true);
  });

  it('a drop in time does not carry a forced reason', () => {
    const forced = dropRoot(turn(add(start)), { rotationId: 'r1', now: 20 + day, opensAt: 20 + day, forcedReason: 'habit' }).state;
    assert.equal(forced.removed[0]?.forcedReason, '');
  });

  it('H-04 abort after add takes the new root back; it never signed', () => {
    const state = abortRotation(add(start), { rotationId: 'r1', now: 15 }).state;
    assert.deepEqual(ids(state), ['A']);
    assert.deepEqual(state.removed[0], { id: 'B', switchedAt: 0, removedAt: 15, forcedReason: '' });
    assert.equal(abortRotation(state, { rotationId: 'r1', now: 16 }).changed, false);
  });

  it('H-04 abort after switch signs under the old root again, once, and the new one waits for its drop', () => {
    const aborted = abortRotation(turn(add(start)), { rotationId: 'r1', now: 30 });
    assert.equal(aborted.state.signing, 'A');
    assert.deepEqual(ids(aborted.state), ['A', 'B']);
    assert.deepEqual(abortRotation(aborted.state, { rotationId: 'r1', now: 31 }), { state: aborted.state, changed: false });
    const dropped = dropRoot(aborted.state, { rotationId: 'r1', now: 30 + day, opensAt: 30 + day, forcedReason: '' }).state;
    assert.deepEqual(ids(dropped), ['A']);
    assert.equal(dropped.lastRotation?.outcome, 'aborted');
  });

  it('H-04 abort after drop is refused and says to start a new rotation', () => {
    const dropped = drop(turn(add(start)));
    assertRefused(() => abortRotation(dropped, { rotationId: 'r1', now: 99 }), 'INVALID_STATE', /start a new rotation instead$/);
  });

  it('whatever steps come in whatever order: the signing root is trusted, at least one root and at most two', () => {
    const step = fc.record({ kind: fc.constantFrom('add', 'switch', 'drop', 'abort'), id: fc.constantFrom('r1', 'r2', 'r3') });
    const apply = (state: CommandRoots, { kind, id: rotationId }: { kind: string; id: string }, now: number): Step => {
      if (kind === 'add') return addRoot(state, { rotationId, newRoot: `root-${rotationId}`, now });
      if (kind === 'switch') return switchRoot(state, { rotationId, now });
      if (kind === 'drop') return dropRoot(state, { rotationId, now, opensAt: 0, forcedReason: '' });
      return abortRotation(state, { rotationId, now });
    };
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        let state = start;
        steps.forEach((one, now) => {
          try {
            const next = apply(state, one, now);
            assert.equal(next.changed, next.state !== state);
            state = next.state;
          } catch (error) {
            assert.ok(error instanceof ControlError, String(error));
          }
          assert.ok(ids(state).includes(state.signing));
          assert.ok(state.roots.length <= 2 && state.roots.length >= 1);
          assert.equal(state.roots.length === 2, state.rotation !== null);
          assert.ok(state.removed.length <= 16);
        });
      }),
    );
  });
});
